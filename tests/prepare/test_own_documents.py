"""Documents of one's own: JSON lines and plain text, held-out parts, and a vocabulary that knows every text."""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Callable, Dict, List

import pytest

from fairseq_mega.data.json_lines import Source
from fairseq_mega.data.text_units import MODEL_FILE, DocumentUnit, SubwordVocabulary
from fairseq_mega.lab.prepare.language_modeling.own_documents import documents_of
from fairseq_mega.lab.prepare.progress import HELD_OUT
from tests.support import json_texts
from tests.support.prepare_runs import prepare


def test_json_lines_and_plain_text(tmp_path: Path) -> None:
    texts = json_texts.documents(60, 1)
    json_texts.write(tmp_path / "a.jsonl", texts[:40])
    (tmp_path / "b.txt").write_text("\ufeff" + "\n\n \n\ufeff".join(texts[40:]) + "\n", encoding="utf-8")
    files = [tmp_path / "a.jsonl", tmp_path / "b.txt"]
    out = tmp_path / "out"
    said = prepare("own-documents", "--out", out, "--texts", *files, "--vocab-size", 320).succeeded().output
    assert "train: 54 documents, " in said and "subwords, 320 requested" in said
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


def lines(texts: List[str]) -> str:
    return "".join(json.dumps({"text": text}) + "\n" for text in texts)


TEXTS = json_texts.documents(24, 5)
PLAIN = "\n\n".join(TEXTS) + "\n"
FORMS: Dict[str, Callable[[], bytes]] = {
    "a.JSONL": lambda: lines(TEXTS).encode(),
    "windows.jsonl": lambda: ("\ufeff" + lines(TEXTS).replace("\n", "\r\n")).encode(),
    "packed.jsonl.gz": lambda: gzip.compress(lines(TEXTS).encode()),
    "packed.txt.gz": lambda: gzip.compress(PLAIN.encode()),
}


@pytest.mark.parametrize("name", FORMS)
def test_the_ending_decides_how_a_file_is_read(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(FORMS[name]())
    assert list(documents_of(Source(tmp_path / name), Counter())) == TEXTS


def test_bad_and_empty_texts_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(lines([*TEXTS[:2], " "]) + '{"body": "x"}\nno JSON\n')
    omitted: Counter[str] = Counter()
    assert list(documents_of(Source(tmp_path / "a.jsonl", bad_lines="skip"), omitted)) == TEXTS[:2]
    assert list(omitted.values()) == [1, 2]  # empty, bad
    with pytest.raises(ValueError, match=r"a\.jsonl, line 4: .*'text' .--text-field"):
        list(documents_of(Source(tmp_path / "a.jsonl"), omitted))


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
