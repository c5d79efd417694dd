"""Tables of labelled texts: first lines that name the columns, labels that are few or alike, and other files."""

import gzip
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, Optional, Tuple

import pytest
from fairseq.data import Dictionary

from fairseq_mega.lab.evaluate.new_examples import TextReader
from fairseq_mega.lab.prepare.classification.own_texts import read_texts
from tests.support.prepare_runs import byte_texts, labels, prepare, refusal, source_of

ROWS = [("good", f"a fine, {word}; film") for word in ["one", "two", "three"]]
ROWS += [("bad", f'a poor "{word}" film') for word in ["one", "two", "three"]]


def tsv(rows: List[Tuple[str, str]], header: str = "") -> str:
    return header + "".join(f"{label}\t{text}\n" for label, text in rows)


def comma(header: str, delimiter: str = ",") -> str:
    """CSV, texts first."""
    return header + "".join('"' + text.replace('"', '""') + f'"{delimiter}{label}\n' for label, text in ROWS)


TABLES: Dict[str, bytes] = {
    "no header": tsv(ROWS).encode(),
    "label, text": tsv(ROWS, "label\ttext\n").encode(),
    "in capitals": tsv(ROWS, "LABEL\tText\n").encode(),
    "other names": tsv(ROWS, "Sentiment\tReview\r\n").encode(),
    "in quotes": tsv(ROWS, '"class"\t"sentence"\n').encode(),
    "text, label": ("text\tlabel\n" + "".join(f"{text}\t{label}\n" for label, text in ROWS)).encode(),
    "more columns": ("id\tlabel\ttext\n" + "".join(f"7\t{label}\t{text}\n" for label, text in ROWS)).encode(),
    "CSV": comma("text,label\n").encode(),
    "CSV of Windows": comma("Text;Label\r\n", ";").replace("\n", "\r\n").replace("\r\r", "\r").encode("utf-8-sig"),
    "CSV with blanks behind delimiters": (
        "label, text\n" + "".join(f"{label}, " + '"' + text.replace('"', '""') + '"\n' for label, text in ROWS)
    ).encode(),
    "joined, with marks": ("\ufeff" + tsv(ROWS[:4]) + "\ufeff" + tsv(ROWS[4:])).encode(),
    "all in quotes": tsv([(f'"{label}"', '"' + text.replace('"', '""') + '"') for label, text in ROWS]).encode(),
    "texts in quotes": tsv(
        [(label, '"' + text.replace('"', '""') + '"' if '"' in text else text) for label, text in ROWS], "label\ttext\n"
    ).encode(),
    "UTF-16": tsv(ROWS, "label\ttext\n").encode("utf-16"),
    "gzip": gzip.compress(tsv(ROWS, "label\ttext\n").encode()),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_header_is_no_class(name: str, tmp_path: Path) -> None:
    """A header is left out of each of three files."""
    (tmp_path / "own").write_bytes(TABLES[name])
    files = [word for split in ("train", "valid", "test") for word in (f"--{split}", tmp_path / "own")]
    run = prepare("own-texts", *files, "--out", tmp_path / "out").succeeded()
    assert ("names the columns" in run.output) == (name not in ("no header", "joined, with marks", "all in quotes"))
    assert ("columns left out: 'id'" in run.output) == (name == "more columns")
    for split in ("train", "valid", "test"):
        assert source_of(tmp_path / "out")["splits"][split]["labels"] == {"bad": 3, "good": 3}
        assert labels(tmp_path / "out", split) == [label for label, _ in ROWS]
        assert byte_texts(tmp_path / "out" / "src-bin", split) == [text.encode() for _, text in ROWS]


@pytest.mark.parametrize("header", ["id\tLanguage\tReview", "Review;id;language", "language,review,id"])
def test_the_columns_that_are_read_are_told(header: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "own").write_text(header + "\n" + re.sub(r"\w+", "a", header) + "\n")
    read_texts(tmp_path / "own")
    told = "names the columns (label: 'language', text: 'review'), and is left out; columns left out: 'id'"
    assert told in capsys.readouterr().err


def test_texts_that_are_equal_when_cut_are_told(tmp_path: Path) -> None:
    rows = [(label, f"Dear customer service, {label} {number}") for label in ("good", "bad") for number in range(4)]
    (tmp_path / "own.tsv").write_text(tsv(rows))
    run = prepare("own-texts", "--train", tmp_path / "own.tsv", "--out", tmp_path / "out", "--length", 20).succeeded()
    assert "note: texts with several labels, of which a model can learn only one: 1" in run.output
    assert "note: texts of test that are also in train, which raises the score: 2" in run.output


REFUSED: Dict[str, Tuple[bytes, str]] = {
    "a header of other words": (
        tsv(ROWS, "Stimmung\tSatz\n").encode(),
        "line 1 is 'Stimmung' TAB 'Satz', a label that",
    ),
    "CSV without a header": ("".join(f'{label},"{text}"\n' for label, text in ROWS).encode(), "line 1 has no TAB"),
    "CSV with blanks": (
        b'label,text\ngood, "a film"\n',
        "line 2 has a blank before a field in double quotes: remove it",
    ),
    "CSV without quotes": (b"label,text\ngood,a fine, long film\n", "line 2 has 3 columns, 2 are needed; .* quotes"),
    "JSON lines": (json.dumps({"label": "good", "text": "x"}).encode(), "it is JSON, .*jq -r"),
    "JSON over several lines": (json.dumps([{"label": "good", "text": "x"}], indent=1).encode(), "it is JSON, .*jq -r"),
    "three columns without names": (
        b"7\tgood\ta film\n",
        "line 1 has 3 columns, and label TAB text is needed: write a first line that names the columns",
    ),
    "two columns of texts": (b"label,text,text\ngood,a film,long\n", "names the columns 'label' and 'text' and 'text'"),
    "two columns of labels": (b"Label\tSentiment\tText\na\tb\tc\n", "names the columns 'label' and 'sentiment' and"),
    "carriage returns": (
        tsv(ROWS).replace("\n", "\r").encode(),
        "lines end in carriage returns.*tr '.r' '.n' <.*own.tsv",
    ),
    "carriage returns, CSV": (comma("text,label\n").replace("\n", "\r").encode(), "lines end in carriage returns"),
    "labels of cp1251": (
        tsv([("хорошо", "x y")] + ROWS).encode("cp1251"),
        "line 1 has a label that is not UTF-8: convert",
    ),
    "texts that are all empty": (tsv([(label, "") for label, _ in ROWS]).encode(), "line 1 and 5 more have no text"),
    "texts that are empty": (tsv([*ROWS, ("bad", " "), ("good", "")]).encode(), "line 7 and 1 more have no text"),
    "some labels in quotes": (
        tsv([('"good"', "x y")] + ROWS).encode(),
        "line 1 has its label in quotes, and line 7 is",
    ),
    "labels in single quotes": (
        "".join(f"'{label}'\t'{text}'\n" for label, text in ROWS).encode(),
        "its labels are in single quotes",
    ),
    "a NUL byte": (tsv(ROWS * 200 + [("bad", "x\0y")]).encode(), "line 1201 contains a NUL byte"),
    "UTF-7": (tsv([*ROWS, ("bad", "schön")]).encode("utf-7"), "text in UTF-7; .*`iconv -f UTF-7"),
    "too few": (tsv(ROWS[:4]).encode(), "labels with too few examples: 'bad' has 1; 3 of each are needed"),
    "UTF-16 without a mark": (tsv(ROWS).encode("utf-16-le"), "text in UTF-16 without a byte-order mark; .*UTF-16LE"),
    "a table of an office program": (b"PK\x03\x04" + bytes(99), "packed with zip .or a document of an office program"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_table_is_named(name: str, tmp_path: Path) -> None:
    content, message = REFUSED[name]
    (tmp_path / "own.tsv").write_bytes(content)
    assert re.search(message, refusal("own-texts", "--train", tmp_path / "own.tsv", "--out", tmp_path / "out"))


def test_texts_that_are_no_utf8_are_told(tmp_path: Path) -> None:
    (tmp_path / "own.tsv").write_bytes(tsv([*ROWS, ("bad", "schön")]).encode("latin-1"))
    run = prepare("own-texts", "--train", tmp_path / "own.tsv", "--out", tmp_path / "out").succeeded()
    assert "own.tsv is not UTF-8 in 1 of 7 texts, first in line 7: their bytes are taken as they are" in run.output


def test_a_text_that_is_utf8_by_chance_changes_no_advice(tmp_path: Path) -> None:
    """The Chinese one alone is D2 BB in GBK, which is a letter in UTF-8."""
    rows = [*[("bad", "\u96ea\u5728\u77f3\u4e0a")] * 20, ("good", "\u4e00")]
    (tmp_path / "own.tsv").write_bytes(tsv([*ROWS, *rows]).encode("gbk"))
    run = prepare("own-texts", "--train", tmp_path / "own.tsv", "--out", tmp_path / "out").succeeded()
    assert "new texts must have the same encoding, or convert the file" in run.output
    assert "get the text again" not in run.output


def test_a_label_of_the_first_row_alone_is_asked_about(tmp_path: Path) -> None:
    (tmp_path / "own.tsv").write_text(tsv(ROWS, "emotion\ttext of the tweet\n"))
    (tmp_path / "valid.tsv").write_text(tsv(ROWS))
    files = ("--train", tmp_path / "own.tsv", "--valid", tmp_path / "valid.tsv", "--test", tmp_path / "valid.tsv")
    assert "line 1 is 'emotion' TAB 'text of" in refusal("own-texts", *files, "--out", tmp_path / "out")


def test_symbols_that_train_lacks_are_counted(tmp_path: Path) -> None:
    (tmp_path / "own.tsv").write_text(tsv(ROWS))
    (tmp_path / "test.tsv").write_text(tsv([(label, text.upper()) for label, text in ROWS]))
    files = ("--train", tmp_path / "own.tsv", "--valid", tmp_path / "own.tsv", "--test", tmp_path / "test.tsv")
    run = prepare("own-texts", *files, "--out", tmp_path / "out").succeeded()
    capitals = sum(char.isupper() for _, text in ROWS for char in text.upper())
    (line,) = [line for line in run.output.splitlines() if "<unk>" in line]
    assert line.startswith("test: ") and line.endswith(f"; {capitals} of all are <unk>, symbols that train lacks")


def test_the_same_first_line_of_two_files_names_columns(tmp_path: Path) -> None:
    (tmp_path / "own.tsv").write_text(tsv(ROWS, "Stimmung\tder Satz dazu, in Worten\n"))
    files = [word for split in ("train", "valid", "test") for word in (f"--{split}", tmp_path / "own.tsv")]
    assert "line 1 is 'Stimmung' TAB 'der Satz" in refusal("own-texts", *files, "--out", tmp_path / "out")


@pytest.mark.parametrize(
    ("first_line", "classes"), [("names", ["bad", "good"]), ("example", ["Stimmung", "bad", "good"])]
)
def test_the_first_line_can_be_said(first_line: str, classes: List[str], tmp_path: Path) -> None:
    (tmp_path / "own.tsv").write_text(tsv(ROWS, "Stimmung\tSatz\n"))
    files = [word for split in ("train", "valid", "test") for word in (f"--{split}", tmp_path / "own.tsv")]
    prepare("own-texts", *files, "--out", tmp_path / "out", "--first-line", first_line).succeeded()
    assert sorted(source_of(tmp_path / "out")["splits"]["train"]["labels"]) == classes


def test_texts_that_hold_the_names_of_columns_are_no_names(tmp_path: Path) -> None:
    rows = [(label, f"{text}, text, label") for label, text in ROWS]
    (tmp_path / "own.tsv").write_text(tsv(rows))
    prepare("own-texts", "--train", tmp_path / "own.tsv", "--out", tmp_path / "out").succeeded()
    assert sum(sum(part["labels"].values()) for part in source_of(tmp_path / "out")["splits"].values()) == len(rows)


BEHIND: Dict[str, str] = {
    "different texts": "".join(f"{text}\t{label}\n" for label, text in ROWS),
    "repeated texts": "".join(f"{text}\t{label}\n" for label, text in ROWS) * 4,
    "numbers as labels": "".join(f"It is number {n}.\t{n % 2}\n" for n in range(50)),
    "many labels": "".join(f"a text with the number {n}\tintent {n % 150}\n" for n in range(900)),
    "some texts in quotes": '"Fine", they said, "fine"\t1\n"Not fine."\t0\n' + "a long text\t1\nand more\t0\n",
    "names of columns": "Satz dazu\tStimmung\n" + "".join(f"{text}\t{label}\n" for label, text in ROWS * 3),
}


@pytest.mark.parametrize("first_line", ["auto", "names"])
@pytest.mark.parametrize("name", BEHIND)
def test_labels_behind_texts_are_named(name: str, first_line: str, tmp_path: Path) -> None:
    path = tmp_path / "own.tsv"
    path.write_text(BEHIND[name])
    message = refusal("own-texts", "--train", path, "--out", tmp_path / "out", "--first-line", first_line)
    assert "so column 2 seems to hold the labels: write text TAB label as the first line of each table" in message


def test_the_remedies_for_labels_behind_texts_work(tmp_path: Path) -> None:
    """Named columns, or --first-line example for those who want texts as labels."""
    path, options = tmp_path / "own.tsv", ("--train", tmp_path / "own.tsv", "--out")
    path.write_text(BEHIND["repeated texts"])
    prepare("own-texts", *options, tmp_path / "example", "--first-line", "example").succeeded()
    assert len(source_of(tmp_path / "example")["splits"]["train"]["labels"]) == 6
    path.write_text("text\tlabel\n" + BEHIND["repeated texts"])
    prepare("own-texts", *options, tmp_path / "named").succeeded()
    assert sorted(source_of(tmp_path / "named")["splits"]["train"]["labels"]) == ["bad", "good"]


@pytest.mark.parametrize(
    "rows",
    [
        [(f"a label of some length, {n % 2}", "abcdef"[n % 6]) for n in range(60)],
        [(f"a label of some length, {n % 5}", "abcd"[n % 4]) for n in range(60)],
        [("good", "GOOD"), ("bad", "BAD")] * 9,
    ],
)
def test_short_texts_are_no_labels(rows: List[Tuple[str, str]], tmp_path: Path) -> None:
    (tmp_path / "own.tsv").write_text(tsv(rows))
    prepare("own-texts", "--train", tmp_path / "own.tsv", "--out", tmp_path / "out").succeeded()
    assert set(source_of(tmp_path / "out")["splits"]["train"]["labels"]) == {label for label, _ in rows}


def test_what_options_take_away_is_told(tmp_path: Path) -> None:
    (tmp_path / "own.tsv").write_text(tsv(ROWS))
    options = ("--train", tmp_path / "own.tsv", "--out", tmp_path / "out", "--length", 18, "--limit", 1)
    run = prepare("own-texts", *options).succeeded()
    assert "2 texts are longer than --length 18 bytes" in run.output
    assert "--limit leaves no example to train on of 1 labels: " in run.output


@pytest.mark.parametrize(
    ("texts", "read"),
    [
        (['"one, two"', "three", '"four, five"', "six"], ["one, two", "three", "four, five", "six"]),
        (['"one; two"', "three, four", '"five; six"', "seven"], ["one; two", "three, four", "five; six", "seven"]),
        (['"one, two"', "three, four", '"five, six"', "seven"], None),
        (['"one, two"', "three", '"four, five"', '"six"'], None),
        (['"one, two"', "three", '"four, five"', 'six "seven"'], None),
    ],
)
def test_quotes_that_spreadsheets_write(texts: List[str], read: Optional[List[str]], tmp_path: Path) -> None:
    """Around fields with commas or semicolons, and those alone."""
    rows = [(label, text) for text in texts for label in ("good", "bad")]
    (tmp_path / "own.tsv").write_text(tsv(rows))
    files = [word for split in ("train", "valid", "test") for word in (f"--{split}", tmp_path / "own.tsv")]
    run = prepare("own-texts", *files, "--out", tmp_path / "out").succeeded()
    assert ("fields in double quotes are read without them" in run.output) == (read is not None)
    found = byte_texts(tmp_path / "out" / "src-bin", "train")
    assert found == [text.encode() for text in read or texts for _ in range(2)]


TOLD: Dict[str, Tuple[str, str]] = {
    "a text over two lines of a table": (
        tsv(ROWS) + 'good\t"first line\nbad\tsecond line"\n',
        "a text in quotes seems to begin in line 7 and to end in line 8, and each line is a row here",
    ),
    "quotes that may be text": (
        tsv([*ROWS[:3], *[("bad", f"a poor {word}") for word in "abc"], ("bad", '"bad, bad"')]),
        "1 fields are in double quotes, which are read as text: remove marks",
    ),
    "quotes that are open": (tsv([*ROWS, ("good", '"I like it'), ("bad", "a screen of 5' and not more")]), ""),
    "rows of several lines": (
        comma("text,label\n") + '"one\ntwo\nthree",good\n"one\ntwo",bad\n',
        "2 rows have several lines, the longest one 3, up to line 10",
    ),
    "a quote that swallows rows": (
        comma("text,label\n") + '"never closed,good\n' + "a film,bad\n" * 20 + '5",bad\n',
        "1 rows have several lines, the longest one 22, up to line 29",
    ),
    "lines of Windows in a field": (
        (comma("text,label\n") + '"one\ntwo",good\n"one\n",bad\n').replace("\n", "\r\n"),
        r"2 of the 8 texts of .* have lines that end in CR LF, .*`sed 's/\\r\$//' .*own.tsv >OUT`",
    ),
    "lines of Windows around fields": (comma("text,label\n").replace("\n", "\r\n"), ""),
    "one text, two labels": (tsv([*ROWS, ("bad", ROWS[0][1])]), "with several labels, .* learn only one: 1"),
    "copies": (tsv(ROWS * 9), "texts of test that are also in train, which raises the score: 4"),
}


@pytest.mark.parametrize("name", TOLD)
def test_what_is_odd_is_told(name: str, tmp_path: Path) -> None:
    content, message = TOLD[name]
    (tmp_path / "own.tsv").write_text(content, newline="")
    run = prepare("own-texts", "--train", tmp_path / "own.tsv", "--out", tmp_path / "out").succeeded()
    assert re.search(message, run.output) if message else "note: " not in run.output


@pytest.mark.parametrize("texts", [("хорошо", "плохо"), ("すごい", "ひどい"), ("GOOD", "BAD"), ("καλό", "κακό")])
def test_new_texts_are_bytes_as_those_of_training(texts: Tuple[str, str], tmp_path: Path) -> None:
    """Whatever the script: no blank and no letter e need be among them."""
    rows = "".join(f"{label}\t{text}\n" for label, text in zip(("good", "bad"), texts))
    (tmp_path / "own").write_text(rows * 10, encoding="utf-8")
    prepare("own-texts", "--train", tmp_path / "own", "--out", tmp_path / "out").succeeded()
    dictionaries = [Dictionary.load(str(tmp_path / "out" / name / "dict.txt")) for name in ("src-bin", "label-bin")]
    task: Any = SimpleNamespace(
        cfg=SimpleNamespace(data=str(tmp_path / "out")),
        dictionary=dictionaries[0],
        label_dictionary=dictionaries[1],
        documents=1,
        pooling="mp",
        longest=4000,
    )
    for text, (_, inputs) in zip(texts, TextReader(task).read_lines(iter(texts))):
        tokens = inputs["src_tokens"].flatten().tolist()[: len(text.encode())]
        assert [dictionaries[0][token] for token in tokens] == [str(byte) for byte in text.encode()]


@pytest.mark.parametrize("line", ["sep=;", "SEP=,", "sep=\t", '"sep=;"'])
def test_a_line_for_spreadsheets_is_named(line: str, tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text(f"{line}\n" + comma("text;label\n", ";"))
    assert "line 1 declares the separator" in refusal("own-texts", "--train", path, "--out", tmp_path / "out")


@pytest.mark.parametrize("delimiter", [",", "\t"])
def test_labels_stay_as_they_are_written(delimiter: str, tmp_path: Path) -> None:
    """Also those that tools for tables take for missing values or for numbers."""
    written = ["NA", "nan", "null", "None", "1e3", "007", "1.0", "TRUE"]
    rows = "".join(f"{label}{delimiter}a text\n" for label in written)
    (tmp_path / "own.csv").write_text(f"label{delimiter}text\n{rows}")
    assert [label for _, label in read_texts(tmp_path / "own.csv")] == written


RECORDS = {
    "bytes of Python": [r"b'sch\xc3\xb6n'", r"b'n\xc3\xa4chstes'"],
    "dictionaries of Python": ["{'text': 'a'}", "{'text': 'b'}"],
    "texts of JSON": [r'"sch\u00f6n"', r'"\u00f6de"'],
    "arrays of JSON": ['["a", "b"]', '["c"]'],
    "objects of JSON": ['{"text": "a"}', '{"text": "b"}'],
    "arrays of JSON, one a line": ['[{"text": "a"}, 1]', "[{}]"],
    "": ["b's house", "'a' and 'b'"],
}


@pytest.mark.parametrize("form", RECORDS)
def test_texts_that_are_data_are_noted(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = RECORDS[form] * 5
    rows = "".join(f"{number % 2}\t{text}\n" for number, text in enumerate(texts))
    (tmp_path / "own.tsv").write_text(rows)
    assert len(read_texts(tmp_path / "own.tsv")) == len(texts)
    told = capsys.readouterr().err
    assert f"the texts of {tmp_path / 'own.tsv'} are {form}" in told if form else "the texts of" not in told
