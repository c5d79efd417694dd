"""Tables of labelled texts: their columns, what is refused with its line, and what is told of texts and labels."""

import argparse
import gzip
import json
import re
from pathlib import Path
from typing import Dict, List, Tuple

import pytest

from fairseq_mega.lab.evaluate.new_examples import TextReader
from fairseq_mega.lab.prepare.classification.own import read_texts
from fairseq_mega.tasks.lra_text import LRATextTask
from tests.support.prepare_runs import byte_texts, labels, prepare, refusal, source_of

ROWS = [("good", f"a fine, {word}; film") for word in ["one", "two", "three"]]
ROWS += [("bad", f'a poor "{word}" film') for word in ["one", "two", "three"]]
HEADER = "label\ttext\n"


def tsv(rows: List[Tuple[str, str]], header: str = HEADER) -> str:
    return header + "".join(f"{label}\t{text}\n" for label, text in rows)


def comma(header: str = "text,label\n") -> str:
    """CSV, texts first."""
    return header + "".join('"' + text.replace('"', '""') + f'",{label}\n' for label, text in ROWS)


TABLES: Dict[str, Tuple[str, bytes]] = {
    "label, text": ("own.tsv", tsv(ROWS).encode()),
    "text, label": ("own.tsv", ("text\tlabel\n" + "".join(f"{text}\t{label}\n" for label, text in ROWS)).encode()),
    "more columns": ("own.TSV", ("id\tlabel\ttext\n" + "".join(f"7\t{a}\t{b}\n" for a, b in ROWS)).encode()),
    "with a mark and CR LF": ("own.tsv", tsv(ROWS).replace("\n", "\r\n").encode("utf-8-sig")),
    "CSV": ("own.csv", comma().encode()),
    "CSV of Windows": ("own", comma().replace("\n", "\r\n").encode("utf-8-sig")),
    "gzip": ("own.tsv.gz", gzip.compress(tsv(ROWS).encode())),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_header_is_no_class(name: str, tmp_path: Path) -> None:
    """The header of each of three files is omitted."""
    file, content = TABLES[name]
    (tmp_path / file).write_bytes(content)
    files = [word for split in ("train", "valid", "test") for word in (f"--{split}", tmp_path / file)]
    prepare("own-texts", *files, "--out", tmp_path / "out").succeeded()
    for split in ("train", "valid", "test"):
        assert source_of(tmp_path / "out")["splits"][split]["labels"] == {"bad": 3, "good": 3}
        assert labels(tmp_path / "out", split) == [label for label, _ in ROWS]
        assert byte_texts(tmp_path / "out" / "src-bin", split) == [text.encode() for _, text in ROWS]


def test_the_first_line_may_be_an_example(tmp_path: Path) -> None:
    (tmp_path / "own.tsv").write_text(tsv(ROWS, ""))
    options = ("own-texts", "--train", tmp_path / "own.tsv", "--out", tmp_path / "out")
    assert "--first-line" in refusal(*options)
    prepare(*options, "--first-line", "example").succeeded()
    assert sum(sum(part["labels"].values()) for part in source_of(tmp_path / "out")["splits"].values()) == len(ROWS)


def test_fields_of_several_lines_and_quotes_of_tsv(tmp_path: Path) -> None:
    """In CSV a quoted field may have lines; in a tab-separated table quotes are characters."""
    (tmp_path / "own.csv").write_text('label,text\ngood,"one\ntwo"\nbad,three\n')
    assert read_texts(tmp_path / "own.csv") == [(b"one\ntwo", "good"), (b"three", "bad")]
    (tmp_path / "own.tsv").write_text('label\ttext\ngood\t"one\nbad\t"two" or three\n')
    assert read_texts(tmp_path / "own.tsv") == [(b'"one', "good"), (b'"two" or three', "bad")]


REFUSED: Dict[str, Tuple[str, bytes, str]] = {
    "other names": ("own.tsv", tsv(ROWS, "Stimmung\tSatz\n").encode(), "line 1 .*--first-line"),
    "CSV named .tsv": ("own.tsv", comma().encode(), "line 1 .*--first-line"),
    "TABs without .tsv": ("own.txt", tsv(ROWS).encode(), "line 1 .*--first-line"),
    "two columns of texts": ("own.csv", b"label,text,text\ngood,a film,long\n", "line 1 .*--first-line"),
    "JSON lines": ("own.jsonl", json.dumps({"label": "good", "text": "x"}).encode(), "line 1 .*--first-line"),
    "a comma in a text": ("own.csv", b"label,text\ngood,a film\ngood,a fine, long film\n", "line 3 "),
    "a column too few": ("own.tsv", tsv(ROWS).encode() + b"good\n", "line 8 "),
    "an open quote": ("own.csv", comma().encode() + b'"never closed,good\n', "line 7 is not a row"),
    "a carriage return": ("own.csv", b"label,text\rgood,a film\r", "not a row"),
    "a label of cp1251": ("own.tsv", HEADER.encode() + tsv([("хорошо", "x y")], "").encode("cp1251"), "line 2: "),
    "a text of Latin-1": ("own.tsv", tsv([*ROWS, ("bad", "schön")]).encode("latin-1"), "line 8: "),
    "UTF-16": ("own.tsv", tsv(ROWS).encode("utf-16"), "line 1: "),
    "a token of fairseq's": ("own.tsv", tsv([*ROWS, ("</s>", "a film")]).encode(), "line 8 .*'</s>'"),
    "no label": ("own.tsv", tsv([*ROWS, (" ", "a film")]).encode(), "line 8 .*label"),
    "no text": ("own.tsv", tsv([*ROWS, ("bad", " "), ("good", "")]).encode(), "line 8 .*text"),
    "no rows": ("own.tsv", HEADER.encode(), "holds no rows"),
    "nothing": ("own.tsv", b"", "line 1 "),
    "too few": ("own.tsv", tsv(ROWS[:4]).encode(), "'bad' has 1; 3 of each are needed"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_table_is_named(name: str, tmp_path: Path) -> None:
    file, content, message = REFUSED[name]
    (tmp_path / file).write_bytes(content)
    told = refusal("own-texts", "--train", tmp_path / file, "--out", tmp_path / "out")
    assert f"{tmp_path / file}" in told or name == "too few"
    assert re.search(message, told) and not (tmp_path / "out").exists()


def test_texts_that_are_equal_when_cut_are_told(tmp_path: Path) -> None:
    rows = [(label, f"Dear customer service, {label} {number}") for label in ("good", "bad") for number in range(4)]
    (tmp_path / "own.tsv").write_text(tsv(rows))
    run = prepare("own-texts", "--train", tmp_path / "own.tsv", "--out", tmp_path / "out", "--length", 20).succeeded()
    assert "note: examples of test that are also in train, which raises the score: 2" in run.output


def test_symbols_that_train_lacks_are_counted(tmp_path: Path) -> None:
    (tmp_path / "own.tsv").write_text(tsv(ROWS))
    (tmp_path / "test.tsv").write_text(tsv([(label, text.upper()) for label, text in ROWS]))
    files = ("--train", tmp_path / "own.tsv", "--valid", tmp_path / "own.tsv", "--test", tmp_path / "test.tsv")
    run = prepare("own-texts", *files, "--out", tmp_path / "out").succeeded()
    capitals = sum(char.isupper() for _, text in ROWS for char in text.upper())
    (line,) = [line for line in run.output.splitlines() if "<unk>" in line]
    assert line.startswith("test: ") and line.endswith(f"; {capitals} of all are <unk>, tokens that train lacks")


def test_what_options_remove_is_printed(tmp_path: Path) -> None:
    (tmp_path / "own.tsv").write_text(tsv(ROWS))
    options = ("--train", tmp_path / "own.tsv", "--out", tmp_path / "out", "--length", 18, "--limit", 1)
    run = prepare("own-texts", *options).succeeded()
    assert "2 texts are longer than --length 18 bytes" in run.output


@pytest.mark.parametrize("texts", [("хорошо", "плохо"), ("すごい", "ひどい"), ("GOOD", "BAD"), ("καλό", "κακό")])
def test_new_texts_are_bytes_as_those_of_training(texts: Tuple[str, str], tmp_path: Path) -> None:
    """Whatever the script: no blank and no letter e need be among them."""
    (tmp_path / "own.tsv").write_text(tsv([*zip(("good", "bad"), texts)] * 10), encoding="utf-8")
    prepare("own-texts", "--train", tmp_path / "own.tsv", "--out", tmp_path / "out").succeeded()
    task = LRATextTask.setup_task(argparse.Namespace(data=str(tmp_path / "out")))
    task.longest = 4000
    for text, (_, inputs) in zip(texts, TextReader(task).read_lines(iter(texts))):
        tokens = inputs["src_tokens"].flatten().tolist()[: len(text.encode())]
        assert [task.dictionary[token] for token in tokens] == [str(byte) for byte in text.encode()]


def test_labels_stay_as_they_are_written(tmp_path: Path) -> None:
    """Also those that tools for tables take for missing values or for numbers."""
    written = ["NA", "nan", "null", "None", "1e3", "007", "1.0", "TRUE"]
    (tmp_path / "own.csv").write_text("label,text\n" + "".join(f"{label},a text\n" for label in written))
    assert [label for _, label in read_texts(tmp_path / "own.csv")] == written
