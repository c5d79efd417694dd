"""Documents of one's own: JSON lines and plain text, held-out parts, and a vocabulary that knows every text."""

import bz2
import gzip
import json
import lzma
import re
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple

import pytest

from fairseq_mega.data.subword_vocabulary import SubwordVocabulary
from fairseq_mega.data.text_units import MODEL_FILE, DocumentUnit
from fairseq_mega.lab.prepare.language_modeling.own_documents import DocumentFile
from fairseq_mega.lab.prepare.splits import HELD_OUT
from tests.support import json_texts
from tests.support.prepare_runs import prepare, refusal


def test_json_lines_and_plain_text(tmp_path: Path) -> None:
    texts = json_texts.documents(60, 1)
    json_texts.write(tmp_path / "a.jsonl", texts[:40])
    (tmp_path / "b.txt").write_text("\ufeff" + "\n\n \n\ufeff".join(texts[40:]) + "\n", encoding="utf-8")
    files = [tmp_path / "a.jsonl", tmp_path / "b.txt"]
    out = tmp_path / "out"
    said = prepare("own-documents", "--out", out, "--texts", *files, "--vocab-size", 320).succeeded().output
    assert "train: 54 documents, " in said and "pieces, 320 requested" in said
    found = {
        split: [json.loads(line)["text"] for line in (out / f"{split}.jsonl").read_text().splitlines()]
        for split in ("train", "valid", "test")
    }
    assert found["valid"] == texts[0::20] and found["test"] == texts[1::20]
    assert found["train"] == [text for number, text in enumerate(texts) if number % 20 > 1]
    vocabulary = SubwordVocabulary(out / MODEL_FILE)
    unit, code = DocumentUnit(out / MODEL_FILE), "if a:\n    b  c \n\n  d"
    assert unit.decode(unit.encode(code)) == code and unit.decode(unit.encode(f"  {code}")) == f"  {code}"
    assert unit.decode(unit.encode("k\udcff\ud800n")) == "k\ufffd\ufffdn"  # bytes that were no UTF-8, half a character
    for text in (texts[0], "größer\n\nthan 10 €"):  # with line ends, and characters that it never saw
        (tokens,) = vocabulary.encode([text])
        assert vocabulary.dictionary.unk() not in tokens
    again = tmp_path / "again"
    prepare("own-documents", "--out", again, "--texts", files[0], "--vocabulary", out / MODEL_FILE).succeeded()
    assert (again / MODEL_FILE).read_bytes() == (out / MODEL_FILE).read_bytes()
    assert len((again / "train.jsonl").read_text().splitlines()) == 36


def test_bad_lines_may_be_left_out(tmp_path: Path) -> None:
    json_texts.write(tmp_path / "a.jsonl", json_texts.documents(40, 1))
    with (tmp_path / "a.jsonl").open("a") as file:
        file.write("no JSON\n")
    given = ("own-documents", "--out", tmp_path / "out", "--texts", tmp_path / "a.jsonl", "--vocab-size", 320)
    assert "line 41: it is not JSON" in refusal(*given)
    run = prepare(*given, "--bad-lines", "skip").succeeded()
    assert "a.jsonl: 40 documents of JSON lines, 1 bad ones left out" in run.output
    assert len((tmp_path / "out" / "train.jsonl").read_text().splitlines()) == 36


TITLE = {"text": "A title"}
BESIDE = {
    "objects": ({**TITLE, "documents": [{"text": "a document"}, {"text": "and another"}]}, True),
    "texts": ({**TITLE, "documents": ["a document", "and another"]}, True),
    "of an empty text": ({"text": "", "documents": [{"text": "x"}]}, True),
    "words of the text": ({**TITLE, "words": ["A", "title"], "places": [[0, 1], [2, 7]]}, False),
    "objects without the field": ({**TITLE, "links": [{"href": "https://example.org"}] * 9}, False),
    "a bracket in the text": ({"text": "[1]" * 9}, False),
}


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("name", BESIDE)
def test_lists_of_texts_beside_the_text_are_told(name: str, indent: Optional[int], tmp_path: Path) -> None:
    """In objects on one line, and on several lines."""
    entry, told = BESIDE[name]
    (tmp_path / "a.json").write_text(json.dumps(entry, indent=indent))
    (tmp_path / "b.txt").write_text("one\n\ntwo\n\nthree\n" * 40)
    files = ("--texts", tmp_path / "a.json", tmp_path / "b.txt")
    run = prepare("own-documents", *files, "--vocab-size", 300, "--out", tmp_path / "out").succeeded()
    assert ("a.json: 1 objects hold lists of texts, longer than their field 'text'" in run.output) == told


NESTED: Dict[str, Tuple[Callable[[int], str], str]] = {  # the text of a document by its number, and its form
    "objects": (lambda number: json.dumps({"text": f"text {number}"}), "objects of JSON"),
    "on several lines": (lambda number: json.dumps({"text": f"text {number}"}, indent=1), "objects of JSON"),
    "arrays": (lambda number: json.dumps([{"text": f"text {number}"}]), "arrays of JSON"),
    "texts": (lambda number: json.dumps(f"text {number}"), "texts of JSON"),
    "dictionaries": (lambda number: str({"text": number}), "dictionaries of Python"),
    "objects but one": (lambda number: '{"a": 1}' if number else "a heading", "objects of JSON"),
    "some objects": (lambda number: f"text {number}" if number % 3 else '{"a": 1}', ""),
    "lists": (lambda number: str([f"text {number}"]), "lists of Python"),
    "code": (lambda number: f"{{ return {number}; }}", ""),
    "speech": (lambda number: f'"Yes, {number}," he said.', ""),
    "notes": (lambda number: f"[{number}] A note", ""),
}


@pytest.mark.parametrize("name", NESTED)
@pytest.mark.parametrize("is_array", [False, True])
def test_documents_that_are_data_are_told(name: str, is_array: bool, tmp_path: Path) -> None:
    text, form = NESTED[name]
    texts = [text(number) for number in range(120)]
    (tmp_path / "a.json").write_text(json.dumps(texts) if is_array else lines(texts))
    run = prepare(
        "own-documents", "--texts", tmp_path / "a.json", "--vocab-size", 300, "--out", tmp_path / "out"
    ).succeeded()
    notes = [line for line in run.output.splitlines() if "the texts of" in line]
    assert [note.split(" are ")[1].startswith(form) for note in notes] == [True] * bool(form)


def test_a_limit_is_told(tmp_path: Path) -> None:
    for name in "abc":
        json_texts.write(tmp_path / f"{name}.jsonl", json_texts.documents(30, 1))
    files = [tmp_path / f"{name}.jsonl" for name in "abc"]
    options = ("--texts", *files, "--vocab-size", 300, "--out", tmp_path / "out", "--limit", 40)
    output = prepare("own-documents", *options).succeeded().output
    assert f"{files[0]}: 30 documents of JSON lines\n" in output
    assert f"{files[1]}: 10 documents of JSON lines, the first ones (--limit 40)\n" in output
    assert f"{files[2]}: not read (--limit 40)\n" in output


def test_bad_wishes(tmp_path: Path) -> None:
    json_texts.write(tmp_path / "two.jsonl", ["one", "two"])
    (tmp_path / "latin.txt").write_bytes("größer".encode("latin-1"))
    given = ("own-documents", "--out", tmp_path / "out", "--texts")
    assert "2 documents: at least three" in refusal(*given, tmp_path / "two.jsonl")
    assert "is not UTF-8" in refusal(*given, tmp_path / "latin.txt")
    (tmp_path / "packed.txt.gz").write_bytes(b"\x1f\x8b\x08\x00\xff\xfe")
    assert "packed.txt.gz cannot be unpacked" in refusal(*given, tmp_path / "packed.txt.gz")
    message = refusal(*given, tmp_path / "two.jsonl", "--text-field", "body")
    assert "line 1: it has no text in the field 'body'" in message
    assert "--texts: " in refusal(*given, tmp_path / "none.txt")
    assert "--vocab-size 100" in refusal(*given, tmp_path / "two.jsonl", "--vocab-size", 100)
    assert "--limit 3" in refusal(*given, tmp_path / "two.jsonl", "--limit", 3)


def json_text(texts: List[str], **options: Any) -> bytes:
    return json.dumps([{"text": text} for text in texts], **options).encode()


def lines(texts: List[str]) -> str:
    return "".join(json.dumps({"text": text}) + "\n" for text in texts)


TEXTS = json_texts.documents(24, 5)
PLAIN = "\n\n".join(TEXTS) + "\n"
FORMS: Dict[str, Callable[[], bytes]] = {
    "a.JSONL": lambda: lines(TEXTS).encode(),
    "a.ndjson": lambda: lines(TEXTS).encode(),
    "lines.json": lambda: lines(TEXTS).encode(),
    "lines.txt": lambda: lines(TEXTS).encode(),
    "windows.jsonl": lambda: ("\ufeff" + lines(TEXTS).replace("\n", "\r\n")).encode(),
    "wide.jsonl": lambda: lines(TEXTS).encode("utf-16"),
    "array.json": lambda: json_text(TEXTS),
    "array.JSON": lambda: json_text(TEXTS, indent=2),
    "array.txt": lambda: json_text(TEXTS, indent=2),
    "texts.json": lambda: json.dumps(TEXTS).encode(),
    "packed.jsonl.gz": lambda: gzip.compress(lines(TEXTS).encode()),
    "packed.jsonl": lambda: gzip.compress(lines(TEXTS).encode()),
    "plain": lambda: PLAIN.encode(),
    "plain.TXT": lambda: PLAIN.replace("\n", "\r\n").encode("utf-16"),
    "old.txt": lambda: PLAIN.replace("\n", "\r").encode(),
    "wider.txt": lambda: PLAIN.encode("utf-32"),
    "packed.txt": lambda: gzip.compress(PLAIN.encode("utf-16")),
}


@pytest.mark.parametrize("name", FORMS)
def test_what_is_in_a_file_counts(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(FORMS[name]())
    assert list(DocumentFile(tmp_path / name, "text", "error")) == TEXTS


@pytest.mark.parametrize("form", ["plain.txt", "lines.jsonl"])
def test_line_ends_of_other_systems_are_line_feeds_in_training_and_in_use(form: str, tmp_path: Path) -> None:
    windows = [text.replace("\n", "\r\n") + "\r\n\ufeffend" for text in TEXTS]
    content = "\r\n\r\n".join(windows) if form == "plain.txt" else lines(windows)
    (tmp_path / form).write_text(content, encoding="utf-8", newline="")
    given = ("own-documents", "--vocab-size", 300, "--out", tmp_path / "out", "--texts", tmp_path / form)
    prepare(*given).succeeded()
    vocabulary, unit = SubwordVocabulary(tmp_path / "out" / MODEL_FILE), DocumentUnit(tmp_path / "out" / MODEL_FILE)
    kept = [json.loads(line)["text"] for line in (tmp_path / "out" / "train.jsonl").open()]
    learnt = [vocabulary.dictionary.string(tokens[:-1]) for tokens in vocabulary.encode(kept)]
    for text, pieces in zip((text for number, text in enumerate(windows) if number % HELD_OUT > 1), learnt):
        wanted = unit.encode(text.replace("\r\n", "\n").replace("\ufeff", ""))
        for ends in ("\r\n", "\r", "\n"):
            assert unit.encode(text.replace("\r\n", ends)) == pieces == wanted


REFUSED: Dict[str, Tuple[Callable[[], bytes], str]] = {
    "no mark.txt": (lambda: PLAIN.encode("utf-16-le"), "it is text in UTF-16 without a .*`iconv -f UTF-16LE -t UTF-8"),
    "no mark.jsonl": (lambda: lines(TEXTS).encode("utf-16-be"), "`iconv -f UTF-16BE -t UTF-8"),
    "chinese.txt": (lambda: "我们在这里。\n\n第二行。\n".encode("utf-16-le"), "text in UTF-16 without a .*-f UTF-16LE"),
    "numbers.txt": (lambda: ("一二三四五六七八九十" * 30 + "\n").encode("utf-16-be"), "`iconv -f UTF-16BE"),
    "spaces.txt": (lambda: "一\u3000二\u3000三\n".encode("utf-16-be"), "`iconv -f UTF-16BE"),
    "wide.txt": (lambda: PLAIN.encode("utf-32-be"), "text in UTF-32 without a .*`iconv -f UTF-32BE"),
    "zip.txt": (lambda: b"PK\x03\x04" + bytes(99), "it is packed with zip"),
    "text.docx": (lambda: b"PK\x03\x04" + bytes(99), "a document of an office program"),
    "old.doc": (lambda: b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "a document of an office program; save it as plain"),
    "x.bz2": (lambda: bz2.compress(PLAIN.encode()), "packed with bzip2; unpack it: `bunzip2"),
    "x.xz": (lambda: lzma.compress(PLAIN.encode()), "packed with xz; unpack it: `unxz"),
    "x.pdf": (lambda: b"%PDF-1.7\n%\xe2\xe3", "it is a PDF; extract its text: `pdftotext"),
    "twice.gz": (lambda: gzip.compress(gzip.compress(PLAIN.encode())), "it is packed with gzip; unpack it"),
    "x.parquet": (lambda: b"PAR1\x15\x04", "a table in Parquet"),
    "nul.txt": (lambda: b"a b c d e f g h\n" * 99 + b"\0", "contains NUL bytes"),
    "late nul.txt": (lambda: b"a b c d e f g h\n" * 999 + b"\0", "line 1000: it contains a NUL byte"),
    "latin.txt": (lambda: "größer\n".encode("latin-1"), "is not UTF-8"),
    "text.json": (lambda: PLAIN.encode(), "line 1: it is not JSON"),
    "broken.json": (lambda: json_text(TEXTS, indent=1)[:-9], "it begins as JSON, and is not .*jq -c"),
    "broken.txt": (lambda: json_text(TEXTS, indent=1)[:-9], "it begins as JSON, and is not .*jq -c"),
    "several.json": (lambda: b'{\n "text": "a"\n}\n{\n "text": "b"\n}\n', "it begins as JSON, and is not .*jq -c"),
    "spread.txt": (lambda: b'{\n "data": []\n}\n', "entry 1: it has no text in the field 'text'"),
    "japanese.txt": (
        lambda: "これは日本\n\nさよなら\n".encode("iso2022_jp"),
        "text in ISO-2022-JP; .*`iconv -f ISO-2022",
    ),
    "korean.txt": (lambda: "안녕하세요\n".encode("iso2022_kr"), "text in ISO-2022-KR"),
    "chinese hz.txt": (lambda: "你好世界\n\n再见\n".encode("hz"), "text in HZ; .*`iconv -f HZ"),
    "seven.txt": (lambda: "schön 日本\n\nb\n".encode("utf-7"), "text in UTF-7; .*`iconv -f UTF-7"),
    "strings.txt": (lambda: "".join(json.dumps(text) + "\n" for text in TEXTS).encode(), "it holds texts of JSON"),
    "pairs.txt": (lambda: "".join(json.dumps([0, text]) + "\n" for text in TEXTS).encode(), "it holds arrays of JSON"),
    "comment.txt": (lambda: b"# x\n// y\n" + lines(TEXTS).encode(), "it holds JSON lines behind a comment"),
    "python.txt": (lambda: "".join(f"{ {'text': text} }\n" for text in TEXTS).encode(), "it holds dictionaries of Py"),
    "sequence.txt": (lambda: b'\x1e{"text": "a"}\n\x1e{"text": "b"}\n', "it holds a sequence of JSON texts"),
    "twice.jsonl": (
        lambda: b'{"text": "a", "id": {}, "text": "b"}\n',
        "line 1: it has the field 'text' twice in one object; every line",
    ),
    "twice.json": (lambda: b'[{"text": "a", "text": "b"}]', "it has the field 'text' twice in one object"),
    "returns.jsonl": (
        lambda: lines(TEXTS).replace("\n", "\r").encode(),
        "carriage returns, which do not end lines .`tr",
    ),
    "doubled.txt": (
        lambda: b"one\r\r\ntwo\r\r\n\r\r\nthree\r\r\n",
        "its lines end in CR CR LF, so that each of them would",
    ),
    "latin.jsonl": (lambda: b'{"text": "gr\xf6\xdfer"}\n', "line 1: it is not UTF-8 .invalid.*, byte 0xf6"),
    "fields.json": (lambda: b'[{"body": "x"}]', "entry 1: it has no text in the field 'text'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_text_is_named(name: str, tmp_path: Path) -> None:
    make, message = REFUSED[name]
    (tmp_path / name).write_bytes(make())
    with pytest.raises(ValueError, match=f"{re.escape(name)}.*{message}"):
        list(DocumentFile(tmp_path / name, "text", "error"))


@pytest.mark.parametrize(
    "text",
    [
        *("FORM 10-K of a firm\n", "{{stub}} is a word\n", "[1] A note\n", "ID3 is a tag\n", "BZh\n"),
        *("[[Category:Foo]] is here\n", "[ ] buy milk\n", '["quoted"](http://x) is\n', "[] empty\n", '"To be."\n'),
        *(
            '"Yes."\nHe said "no".\n',
            "# A title\nand text\n",
            "1+abc-2 and a+b-c\n",
            "(format t ~{~a~})\n",
            "\x1b[1mbold\n",
        ),
    ],
)
def test_plain_texts_that_look_like_something_else(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text(text)
    assert list(DocumentFile(tmp_path / "x.txt", "text", "error")) == [text.rstrip("\n")]


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("x.CSV", "id,text\n", True),
        ("page.txt", "<!DOCTYPE html>\n<html>\n", True),
        ("wiki", '<mediawiki xml:lang="en">\n', True),
        ("feed.text", '\n<?xml version="1.0"?>\n', True),
        ("chat.txt", "<html5> is a word here\n", False),
        ("x.txt", "id,text\n", False),
    ],
)
def test_tables_and_tags_as_text_are_told(name: str, text: str, told: bool, tmp_path: Path) -> None:
    (tmp_path / name).write_text(f"{text}\n1,hello\n\n2,there\n")
    options = ("--texts", tmp_path / name, "--vocab-size", 300, "--out", tmp_path / "out")
    said = f"{name} is taken as plain text, its commas or tags included" in prepare("own-documents", *options).output
    assert said == told


def test_a_file_that_would_vanish_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text("no JSON\nnone here\n")
    with pytest.raises(ValueError, match=r"x.jsonl: all of its 2 lines are bad"):
        list(DocumentFile(tmp_path / "x.jsonl", "text", "skip"))


def test_documents_without_anything_to_read_are_counted(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text(lines([*TEXTS, "", " \n\t", "\u00a0"]) + "\n \n")
    run = prepare("own-documents", "--texts", tmp_path / "x.jsonl", "--vocab-size", 300, "--out", tmp_path / "out")
    assert "x.jsonl: 24 documents of JSON lines, 3 without anything to read left out" in run.succeeded().output


VOCABULARIES: Dict[str, Tuple[Dict[str, Any], List[str]]] = {
    "as learnt here": ({"normalization_rule_name": "identity", "remove_extra_whitespaces": False}, []),
    "without bytes": (
        {"normalization_rule_name": "identity", "byte_fallback": False},
        ["become <unk> with --vocabulary", "'日'", "23 of 23 documents do not come back"],
    ),
    "of small letters": ({"normalization_rule_name": "nmt_nfkc_cf"}, ["23 of 23 documents do not come back"]),
    "without line ends": ({}, ["23 of 23 documents do not come back"]),
}


@pytest.mark.parametrize("name", VOCABULARIES)
def test_what_a_given_vocabulary_loses_is_told(name: str, tmp_path: Path) -> None:
    import sentencepiece

    options, told = VOCABULARIES[name]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(f"the quick brown fox number {number} jumps" for number in range(200)),
        model_prefix=str(tmp_path / "given"),
        vocab_size=320,
        hard_vocab_limit=False,
        minloglevel=2,
        **{"byte_fallback": True, **options},
    )
    (tmp_path / "x.jsonl").write_text(lines([f"The fox\n 日  {number}" for number in range(27)]))
    given = ("--texts", tmp_path / "x.jsonl", "--vocabulary", tmp_path / "given.model", "--out", tmp_path / "out")
    output = prepare("own-documents", *given).succeeded().output
    assert all(part in output for part in told) and bool(told) == ("note: " in output)


def test_documents_that_are_learnt_and_held_out_are_told(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text(lines(TEXTS))
    for times, told in ((1, False), (2, True)):
        files = [tmp_path / "x.jsonl"] * times
        run = prepare("own-documents", "--texts", *files, "--vocab-size", 300, "--out", tmp_path / str(times))
        note = "note: documents of valid that are also in train, which raises the score: "
        assert (note in run.succeeded().output) == told


@pytest.mark.parametrize("copies, told", [(1, []), (2, ["note: documents repeated in train: 18"])])
def test_documents_that_are_learnt_twice_are_told(copies: int, told: List[str], tmp_path: Path) -> None:
    """Each split has both copies of a document, from a file of HELD_OUT documents."""
    (tmp_path / "x.jsonl").write_text(lines(TEXTS[:HELD_OUT]))
    files = [tmp_path / "x.jsonl"] * copies
    run = prepare("own-documents", "--texts", *files, "--vocab-size", 300, "--out", tmp_path / "out").succeeded()
    notes = [line for line in run.output.splitlines() if line.startswith("note: documents")]
    assert notes == told


def test_folders_of_texts(tmp_path: Path) -> None:
    for number in range(30):
        path = tmp_path / "my texts" / f"part {number % 3}" / f"{number:02}.{'txt' if number % 2 else 'JSONL'}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"text {number}" if number % 2 else lines([f"text {number}"]))
    (tmp_path / "my texts" / "cover.jpg").write_bytes(b"\xff\xd8\xff\xe0")
    for name in (".hidden.txt", ".DS_Store"):
        (tmp_path / "my texts" / name).write_text("no")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "30.md").write_text("text 30")
    (tmp_path / "elsewhere" / "round").symlink_to(tmp_path / "my texts")
    (tmp_path / "my texts" / "more").symlink_to(tmp_path / "elsewhere")
    given = ("own-documents", "--vocab-size", 300, "--out", tmp_path / "out", "--texts")
    run = prepare(*given, tmp_path / "my texts").succeeded()
    told = f"note: {tmp_path / 'my texts'}: 31 files are read; left out: 1 hidden .txt, 1 .jpg"
    assert run.output.count(told) == 1
    source = json.loads((tmp_path / "out" / "SOURCE.json").read_text())
    assert sum(split["documents"] for split in source["splits"].values()) == 31 == len(source["inputs"])
    (tmp_path / "none").mkdir()
    message = refusal("own-documents", "--out", tmp_path / "other", "--texts", tmp_path / "none")
    assert f"the folder {tmp_path / 'none'} has no file .jsonl" in message
    (tmp_path / "my texts" / "gone.txt").symlink_to("nowhere")
    message = refusal("own-documents", "--out", tmp_path / "other", "--texts", tmp_path / "my texts")
    assert f"{tmp_path / 'my texts' / 'gone.txt'}" in message
