"""Text into tokens and back, whole and piece by piece; what card.json says."""

from pathlib import Path
from typing import List

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairseq_mega.data.text_units import (
    LINE_END,
    MODEL_FILE,
    REPLACEMENT,
    ByteUnit,
    DocumentUnit,
    SubwordUnit,
    SubwordVocabulary,
    TextUnit,
    encode_bytes,
    text_unit,
    unit_name,
    unspelled,
)
from fairseq_mega.lab.prepare.language_modeling.texts import write_unit
from fairseq_mega.lab.prepare.sentencepieces import train_model

TEXTS = ("ROMEO: to be", "Grüße – 10 €", "日本語 😀 text", "a", "")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds a model of subwords that were learnt from TEXTS."""
    path = tmp_path_factory.mktemp("unit")
    train_model([*TEXTS] * 20, path / "learnt", 60)
    write_unit(path, "subwords", path / "learnt.model")
    return path


@pytest.fixture(params=["words", "bytes", "subwords"])
def unit(request: pytest.FixtureRequest, folder: Path) -> TextUnit:
    return {"words": TextUnit, "bytes": ByteUnit, "subwords": lambda: SubwordUnit(folder / MODEL_FILE)}[request.param]()


@pytest.mark.parametrize("text", TEXTS)
def test_round_trip(text: str, unit: TextUnit) -> None:
    assert unit.decode(unit.encode(text)) == text
    assert "".join(unit.pieces(unit.encode(text).split())) == text


def test_pieces_continue_a_text(unit: TextUnit) -> None:
    tokens = [*unit.encode("Grüße – 10 €").split(), LINE_END, LINE_END, *unit.encode("a").split()]
    pieces = list(unit.pieces(tokens))
    assert len(pieces) == len(tokens) and "".join(pieces) == "Grüße – 10 €\n\na"
    if unit.name != "bytes":  # a byte does not say whether it begins a word
        assert "".join(unit.pieces(unit.encode("to be").split(), "ROMEO:")) == " to be"
        assert "".join(unit.pieces(unit.encode("to be").split(), "ROMEO: ")) == "to be"


@pytest.mark.parametrize(
    ("tokens", "pieces"),
    [
        ("226 130 172 33", ["", "", "€", "!"]),  # a character comes with its last byte
        ("33 226 130", ["!", "", ""]),  # and without it not at all
        ("226 33", ["", REPLACEMENT + "!"]),
        ("33 <unk> 33", ["!", REPLACEMENT, "!"]),
    ],
)
def test_bytes_are_decimal_numbers(tokens: str, pieces: List[str]) -> None:
    assert list(ByteUnit().pieces(tokens.split())) == pieces
    assert "".join(ByteUnit().pieces(["226", LINE_END, "33"])) == f"{REPLACEMENT}\n!"
    assert ByteUnit().encode("A ü") == "65 32 195 188"


@given(st.lists(st.one_of(st.just(10), st.integers(0, 255)), max_size=60).map(bytes), st.integers(0, 60))
def test_every_byte_is_its_number_and_the_line_feed_ends_the_line(text: bytes, cut: int) -> None:
    found = (encode_bytes(text[:cut]) + encode_bytes(text[cut:])).decode("ascii")
    assert [line.split() for line in found.split("\n")] == [list(map(str, line)) for line in text.split(b"\n")]


def test_the_folder_counts_more_than_the_checkpoint(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert text_unit(tmp_path, "bytes").name == unit_name(tmp_path, "bytes") == "bytes" and not caplog.messages
    assert text_unit(tmp_path).name == "words" and "card.json" in caplog.text  # a warning, no guessing
    write_unit(tmp_path, "bytes")
    assert unit_name(tmp_path, "words") == "bytes"


def test_pieces_that_are_bytes(folder: Path) -> None:
    """Bytes of models with byte fallback form characters; bytes that form none become U+FFFD where they end."""
    unit = SubwordUnit(folder / MODEL_FILE)
    tokens = ["\u2581gr", "<0xC3>", "<0xBC>", "n", "<0x0A>", "\u2581a", "<0xC3>", "\u2581b", "<0xC3>", LINE_END]
    assert list(unit.pieces(tokens)) == ["gr", "", "ü", "n", "\n", "a", "", f"{REPLACEMENT} b", "", "\n"]


@pytest.mark.parametrize("blank", ["\t", "\u00a0", "\u3000", "\u2028", "\n"])
def test_blanks_of_a_document_are_cut_as_in_training(blank: str, tmp_path: Path) -> None:
    """Blanks may be pieces of their own, too; a checkpoint knows these by the names that they always had."""
    texts = [f"def f{number}(a):{blank}return{blank}{blank}a" for number in range(200)]
    train_model(texts, tmp_path / "learnt", 320, byte_fallback=True)
    vocabulary, unit = SubwordVocabulary(tmp_path / "learnt.model"), DocumentUnit(tmp_path / "learnt.model")
    for text in (texts[5], f"a{blank}", f"{blank}a {blank}"):
        (trained,) = vocabulary.encode([text])
        assert vocabulary.dictionary.encode_line(unit.encode(text), add_if_not_exist=False).tolist() == [*trained]
        assert unit.decode(unit.encode(text)) == "".join(unit.pieces(unit.encode(text).split())) == text
    named = set(unspelled("\x01".join(vocabulary.dictionary.symbols)).split("\x01"))
    pieces = (vocabulary.processor.id_to_piece(number) for number in range(3, len(vocabulary.index_of)))
    assert named >= set(pieces)
