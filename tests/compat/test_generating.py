"""Translators of the hub, and sentences that are too long."""

import copy
import re
from pathlib import Path
from typing import Any

import pytest

from fairseq_mega.cli import console
from fairseq_mega.models.mega import MegaModel
from tests.support import helpers

QUICK = ["--max-len-b", 3, "--beam", 2]


@pytest.mark.parametrize(("size", "batch"), [(1, 1), (2, 2), (5, 1), (9, 3)])
def test_a_long_line_is_named(size: int, batch: int, tiny_model: Any, tmp_path: Path) -> None:
    """The number of a line is that in the file, whatever the buffer."""
    text = tmp_path / "text.txt"
    text.write_text("w1 w2\n\nw3\n" + "w4 " * 2000 + "\nw5\n")
    given = [tiny_model.data, "--path", tiny_model.checkpoint, "--cpu", *QUICK, "--input", text]
    given += ["--buffer-size", size, "--batch-size", batch]
    with helpers.captured_output() as output:
        status = console.run("interactive", list(map(str, given)))
    (error,) = [line for line in output.getvalue().splitlines() if ": error: " in line]
    said = rf"error: line 4 of {text} has 2001 tokens with </s>, \d+ at most( \(--max-source-positions\))?: shorten or"
    assert status == console.VALUE_ERROR and re.search(said, error), output.getvalue()


def test_a_translator_is_copied(tiny_model: Any, tiny_corpus: Path) -> None:
    hub = MegaModel.from_pretrained(str(tiny_model.checkpoint.parent), tiny_model.checkpoint.name, str(tiny_corpus))
    assert copy.deepcopy(hub).translate("w1 w2") == hub.translate("w1 w2")


@pytest.mark.parametrize("place", [1, 3])
def test_a_sentence_that_is_too_long_for_a_translator_is_named(place: int, tiny_model: Any, tiny_corpus: Path) -> None:
    hub = MegaModel.from_pretrained(str(tiny_model.checkpoint.parent), tiny_model.checkpoint.name, str(tiny_corpus))
    sentences = ["w1 w2"] * 3
    sentences[place - 1] = "w1 " * 2000
    said = (
        rf"sentence {place} of the list has 2001 tokens with </s>, \d+ at most \(--max-source-positions\): shorten or "
        "split the sentence"
    )
    with pytest.raises(ValueError, match=said):
        hub.translate(sentences)
    if place == 1:
        with pytest.raises(ValueError, match=said):
            hub.translate(sentences[0])
    assert len(hub.generate(list(map(hub.encode, sentences)), skip_invalid_size_inputs=True)) == 2
