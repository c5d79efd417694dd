"""Text into tokens and back, whole and piece by piece; what card.json says."""

import random
from pathlib import Path
from typing import List

import pytest
from fairseq.data import Dictionary

from fairseq_mega.data.subword_vocabulary import SubwordVocabulary
from fairseq_mega.data.text_units import (
    LINE_END,
    MODEL_FILE,
    REPLACEMENT,
    ByteUnit,
    DocumentUnit,
    SubwordUnit,
    TextUnit,
    text_unit,
    unit_name,
    unspelled,
)
from fairseq_mega.lab.prepare.language_modeling.counting import write_unit
from fairseq_mega.lab.prepare.sentencepieces import train_model

TEXTS = ("ROMEO: to be", "Grüße – 10 €", "日本語 😀 text", "a", "")


def dictionary(tokens: List[str]) -> Dictionary:
    made = Dictionary()
    for token in tokens:
        made.add_symbol(token)
    made.finalize(padding_factor=8)
    return made


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


class TestBytes:
    def test_are_decimal_numbers(self) -> None:
        assert ByteUnit().encode("A ü") == "65 32 195 188"

    def test_a_character_comes_with_its_last_byte(self) -> None:
        assert list(ByteUnit().pieces(["226", "130", "172", "33"])) == ["", "", "€", "!"]

    def test_what_is_cut_is_omitted(self) -> None:
        assert ByteUnit().decode("33 226 130") == "!"

    @pytest.mark.parametrize(
        ("tokens", "expected"),
        [
            ("226 33", REPLACEMENT + "!"),
            ("255 33", REPLACEMENT + "!"),
            ("33 <unk> 33", f"!{REPLACEMENT}!"),
            ("226 <unk> 33", f"{REPLACEMENT}{REPLACEMENT}!"),
            ("256 007", REPLACEMENT * 2),
        ],
    )
    def test_what_is_no_text_is_marked(self, tokens: str, expected: str) -> None:
        assert ByteUnit().decode(tokens) == expected

    def test_a_line_ends_a_character(self) -> None:
        assert "".join(ByteUnit().pieces(["226", LINE_END, "33"])) == f"{REPLACEMENT}\n!"

    def test_any_bytes_are_decoded_as_python_does(self) -> None:
        draw = random.Random(1)
        for _ in range(50):
            content = bytes(draw.choice((33, 195, 188, 226, 130, 172, 240, 159)) for _ in range(12)) + b"!"
            assert ByteUnit().decode(" ".join(map(str, content))) == content.decode("utf-8", "replace")


class TestUnitOfData:
    BYTES = dictionary([str(number) for number in range(32, 127)])

    def test_is_written_and_read(self, folder: Path) -> None:
        unit = text_unit(folder)
        assert unit.name == "subwords" and unit.decode(unit.encode("ROMEO: to be")) == "ROMEO: to be"

    def test_the_folder_counts_more_than_the_checkpoint(self, tmp_path: Path) -> None:
        assert unit_name(tmp_path) == "" and unit_name(tmp_path, "words") == "words"
        write_unit(tmp_path, "bytes")
        assert unit_name(tmp_path, "words") == "bytes"

    @pytest.mark.parametrize("saved", ["", "words", "bytes"])
    def test_an_unknown_unit_is_words_with_a_warning(
        self, saved: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        assert text_unit(tmp_path, saved).name == (saved or "words")
        assert ["card.json" in line for line in caplog.messages] == [True] * (not saved)

    @pytest.mark.parametrize("content", ["{", "[]", '{"unit": "letters"}'])
    def test_a_broken_file_is_named(self, content: str, tmp_path: Path) -> None:
        (tmp_path / "card.json").write_text(content)
        with pytest.raises(ValueError, match="card.json"):
            unit_name(tmp_path)

    def test_a_missing_model_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"subwords.model does not exist.*--bpe sentencepiece"):
            text_unit(tmp_path, "subwords")
        (tmp_path / MODEL_FILE).write_text("no model")
        with pytest.raises(ValueError, match="is not a sentencepiece model"):
            text_unit(tmp_path, "subwords")


def test_pieces_that_are_bytes(folder: Path) -> None:
    """Bytes of models with byte fallback form characters; bytes that form none become U+FFFD where they end."""
    unit = SubwordUnit(folder / MODEL_FILE)
    tokens = ["\u2581gr", "<0xC3>", "<0xBC>", "n", "<0x0A>", "\u2581a", "<0xC3>", "\u2581b", "<0xC3>", LINE_END]
    assert list(unit.pieces(tokens)) == ["gr", "", "ü", "n", "\n", "a", "", f"{REPLACEMENT} b", "", "\n"]


@pytest.mark.parametrize(
    "blank", ["\t", "\u00a0", "\u3000", "\u2009", "\u202f", "\u1680", "\x0b", "\x1f", "\u2028", "\n"]
)
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
