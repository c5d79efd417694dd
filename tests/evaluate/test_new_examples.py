"""New texts for a trained classifier: cut, split and read as in training."""

import argparse
import shutil
from pathlib import Path
from typing import Any

import pytest
from fairseq.data import Dictionary

from fairseq_mega.data.card import card_of_subwords
from fairseq_mega.data.text_units import MODEL_FILE, SubwordUnit
from fairseq_mega.lab.evaluate.new_examples import TextReader
from fairseq_mega.lab.prepare.sentencepieces import train_model
from fairseq_mega.tasks.lra_text import LRATextTask
from tests.support.prepare_runs import prepare


def test_bytes_from_the_end_as_in_training(tmp_path: Path) -> None:
    """Data made by imdb --end keep them; --max-positions then keeps the beginning of these, in training too."""
    table, out = tmp_path / "reviews.tsv", tmp_path / "out"
    table.write_text("".join(f"{number % 2}\t{number}\tthe film {number} was fine\n" for number in range(10)))
    prepare("imdb", "--tsv-train", table, "--tsv-test", table, "--length", 8, "--end", "--out", out).succeeded()
    task = LRATextTask.setup_task(argparse.Namespace(data=str(out)))
    special = task.dictionary.nspecial
    text = "fine, it was; in a sea"
    for task.longest, read in ((4000, "in a sea"), (5, "in a ")):
        [(_, inputs)] = TextReader(task).read_lines(iter([text]))
        tokens = inputs["src_tokens"].flatten().tolist()
        assert bytes(int(task.dictionary[token]) for token in tokens if token >= special).decode() == read


def test_an_unknown_unit_is_words(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Data of fairseq-preprocess do not record whether numbers are bytes; card.json in src-bin does."""
    for folder, symbols in (("src-bin", range(32, 127)), ("label-bin", range(2))):
        made = Dictionary()
        for symbol in symbols:
            made.add_symbol(str(symbol))
        (tmp_path / folder).mkdir()
        made.save(str(tmp_path / folder / "dict.txt"))
    task = LRATextTask.setup_task(argparse.Namespace(data=str(tmp_path)))
    task.longest, task.pooling = 100, "mp"
    record = tmp_path / "src-bin" / "card.json"
    for number, length in ((1, 2), (0, len("65 66"))):
        caplog.clear()
        [(_, inputs)] = TextReader(task).read_lines(iter(["65 66"]))
        assert inputs["src_tokens"].numel() == length + 1  # with </s>
        assert len([line for line in caplog.messages if str(record) in line]) == number
        record.write_text('{"unit": "bytes"}')


@pytest.mark.parametrize("place", ["data", "elsewhere", "words"])
def test_pieces_of_the_training_text(place: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Data of fairseq-preprocess do not record that text is of pieces; the file of these pieces, or a warning, does."""
    lines = [f"{first}{second} {second}" for first in "abcdef" for second in "uvwxyz"]
    train_model(lines, tmp_path / "pieces", 30)
    cut = SubwordUnit(tmp_path / "pieces.model").encode
    for folder, text in (("src-bin", map(cut if place != "words" else str, lines)), ("label-bin", iter("01"))):
        made = Dictionary()
        for line in text:
            made.encode_line(line)
        (tmp_path / folder).mkdir()
        made.save(str(tmp_path / folder / "dict.txt"))
    model = tmp_path / "src-bin" / MODEL_FILE
    if place != "elsewhere":
        shutil.copy(tmp_path / "pieces.model", model)
    task: Any = LRATextTask.setup_task(argparse.Namespace(data=str(tmp_path)))
    task.longest, task.pooling = 100, "mp"
    if place != "words":
        task.trained_card = card_of_subwords(tmp_path / "pieces.model")
    reader = TextReader(task)
    for given in (lines[8], cut(lines[8])):
        [(_, inputs)] = reader.read_lines(iter([given]))
        read = task.dictionary.string(inputs["src_tokens"])
        assert (read == cut(lines[8])) == (place == "data" or (place == "elsewhere" and given == cut(lines[8])))
    assert any("subwords: " in message for message in caplog.messages) == (place == "elsewhere")


def test_expressions_of_listops(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An expression is read as its preparation writes it for the model; unknown tokens are counted."""
    prepare("listops", "--smoke", "--out", tmp_path).succeeded()
    task = LRATextTask.setup_task(argparse.Namespace(data=str(tmp_path)))
    for text in ("[MAX 1 2 ]", "( ( ( [MAX 1 ) 2 ) ] )", "[MAX  1\t2 X", "[MAX 1 2]"):
        [(_, inputs)] = TextReader(task).read_lines(iter([text]))
        symbols = [task.dictionary[token] for token in inputs["src_tokens"].flatten().tolist()]
        known = text != "[MAX 1 2]"
        assert " ".join(symbols) == ("[MAX 1 2 X </s>" if known else "[MAX 1 <unk> </s>")
        assert ("1 of the 3 tokens of line 1 are in no training text" in capsys.readouterr().err) == (not known)
