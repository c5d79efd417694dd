"""The units of tokens (words, bytes, subwords), and the way from text to tokens and back.

``unit.json`` beside ``dict.txt`` names the unit: ``{"unit": "bytes"}``. A folder without it, as older ones are, is
taken for bytes where its dictionary holds nothing but numbers of bytes, and for words otherwise.
"""

import codecs
import json
import re
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple

from fairseq.data import Dictionary

from fairseq_mega.compat.checkpoints.names import SUBWORDS_FILE

from .byte_text import encode
from .text_cleaning import clean, steps_of_model

UNIT_FILE = "unit.json"
MODEL_FILE = SUBWORDS_FILE
LINE_END = "\n"  # stands for </s> among the symbols of a text
REPLACEMENT = "\ufffd"
_BYTES = frozenset(map(str, range(256)))
_BYTE_PIECE = re.compile(r"<0x([0-9A-F]{2})>")
_SPELLED = {code: 0xF0000 + code for code in range(0x3001) if chr(code).isspace() and chr(code) != " "}
_UNSPELLED = {spelled: code for code, spelled in _SPELLED.items()}
_MADE_UP = re.compile(r"madeupword\d+")


class TextUnit:
    """Words, whose text is their tokens; the other units derive from it.

    It has the interface of fairseq's ``--bpe``: lines in, tokens between blanks out, and back.
    """

    name = "words"
    parts_lines = True  # </s> ends a line; else a document, whose line ends are tokens

    def encode(self, line: str) -> str:
        """Tokens of a line of text, or of a document where lines are not parted, separated by blanks."""
        return line

    def decode(self, tokens: str) -> str:
        """The line of text that tokens stand for; a character that is not complete at its end is left out."""
        return "".join(self.pieces(tokens.split()))

    def pieces(self, symbols: Iterable[str], before: str = "") -> Iterator[str]:
        """Text of each symbol as it comes, so that the pieces joined are the text.

        Args:
            symbols: of the dictionary, ``LINE_END`` between lines.
            before: the text that they continue; no blank is put at the beginning of a line or after another blank.
        """
        blank = before[-1:].isspace() or not before
        for symbol in symbols:
            text = symbol if symbol == LINE_END else self._spaced(symbol)
            piece = text.lstrip(" ") if blank else text
            blank = text == LINE_END or (blank and not piece)
            yield piece

    def settled(self, text: str) -> int:
        """Length of the longest beginning of a text whose tokens depend on nothing that follows."""
        return next((end for end in range(len(text), 0, -1) if text[end - 1].isspace()), 0)

    def _spaced(self, symbol: str) -> str:
        return f" {symbol}"


class ByteUnit(TextUnit):
    """Bytes of UTF-8, as decimal numbers; see :mod:`fairseq_mega.data.byte_text`."""

    name = "bytes"

    def encode(self, line: str) -> str:
        return encode(line.encode("utf-8", "surrogateescape")).decode("ascii").strip()

    def settled(self, text: str) -> int:
        return len(text)

    def pieces(self, symbols: Iterable[str], before: str = "") -> Iterator[str]:
        """Yield the texts of bytes: an empty one within a character, U+FFFD for wrong UTF-8 and for other symbols."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        for symbol in symbols:
            if symbol == LINE_END:
                yield decoder.decode(b"\n")
            elif is_byte(symbol):
                yield decoder.decode(bytes([int(symbol)]))
            else:
                yield decoder.decode(b"", final=True) + REPLACEMENT


class SubwordUnit(TextUnit):
    """Pieces of a sentencepiece model, of text that is cleaned by the model's rules.

    Args:
        model: its file.

    Raises:
        ValueError: if that is no model.
    """

    name = "subwords"

    def __init__(self, model: Path) -> None:
        import sentencepiece

        try:
            self.processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
        except (RuntimeError, OSError) as error:
            raise ValueError(
                f"{model} is not a sentencepiece model ({error}): copy it from where it was made"
            ) from error
        self.cleaning = steps_of_model(model)

    def encode(self, line: str) -> str:
        readable = line.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # bytes that are no UTF-8
        return " ".join(map(spelled, self.processor.encode(clean(readable, self.cleaning), out_type=str)))

    def settled(self, text: str) -> int:
        """Return the length of the text up to its last line end, see :meth:`TextUnit.settled`."""
        return settled_lines(text)

    def pieces(self, symbols: Iterable[str], before: str = "") -> Iterator[str]:
        """Yield text as the base class; bytes, such as ``<0x0A>``, become the characters that they form together."""
        decoded = _characters(symbols)
        return super().pieces((symbol if symbol == LINE_END else text + symbol for text, symbol in decoded), before)

    def _spaced(self, symbol: str) -> str:
        return unspelled(symbol).replace("\u2581", " ")


def _characters(symbols: Iterable[str]) -> Iterator[Tuple[str, str]]:
    """Yield for each symbol the characters of bytes that it completes, and the symbol itself, "" for a byte."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for symbol in symbols:
        byte = _BYTE_PIECE.fullmatch(symbol)
        if byte is None:
            yield decoder.decode(b"", final=True), symbol
        else:
            yield decoder.decode(bytes([int(byte[1], 16)])), ""


class DocumentUnit(SubwordUnit):
    """Pieces of a sentencepiece model for whole documents: line ends and all blanks are pieces, too."""

    parts_lines = False

    def pieces(self, symbols: Iterable[str], before: str = "") -> Iterator[str]:
        """Yield text with every blank, except for the one that sentencepiece adds before a document."""
        begins = not before
        for characters, symbol in _characters(symbols):
            text = characters + self._spaced(symbol)
            yield text[1:] if begins and symbol and text.startswith(" ") else text
            begins = symbol == LINE_END


UNITS = (TextUnit.name, ByteUnit.name, SubwordUnit.name)


def settled_lines(text: str) -> int:
    """Length of the whole lines at the beginning of a text."""
    return text.rfind(LINE_END) + 1


def encode_after_line_end(encode: Callable[[str], str], text: str) -> str:
    """Tokens of a text that follows a line end within a document, where sentencepiece puts no blank before it.

    Args:
        encode: a document to tokens, separated by blanks.
        text: without that line end.
    """
    return " ".join(encode(LINE_END + text).split()[len(encode(LINE_END).split()) :])


def spelled(piece: str) -> str:
    """A piece as a symbol among others with blanks between: its own TABs and the like as characters of private use."""
    return piece.translate(_SPELLED)


def unspelled(symbols: str) -> str:
    """The pieces that symbols stand for."""
    return symbols.translate(_UNSPELLED)


def is_byte(symbol: str) -> bool:
    """Return whether a symbol is the decimal number of a byte."""
    return symbol in _BYTES


def unit_name(folder: Path, dictionary: Dictionary, saved: Optional[str] = None) -> str:
    """Name of the unit of binarised data: the one in ``unit.json``, else ``saved``, else the dictionary's.

    Raises:
        ValueError: if ``unit.json`` names none.
    """
    path = folder / UNIT_FILE
    if not path.is_file():
        return saved or (ByteUnit.name if holds_bytes(dictionary) else TextUnit.name)
    try:
        content: Dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        name = content["unit"]
        if name in UNITS:
            return name
        problem = f"its unit is {name!r}"
    except (ValueError, KeyError, TypeError) as error:
        problem = f"{type(error).__name__}: {error}"
    raise ValueError(f'{path}: {problem}; it must hold {{"unit": NAME}}, one of {", ".join(UNITS)}')


def holds_bytes(dictionary: Dictionary) -> bool:
    """Return whether all symbols are numbers of bytes, with the blank's and the letter e's among them."""
    symbols = own_symbols(dictionary)
    return {"32", "101"} <= set(symbols) and all(map(is_byte, symbols))


def is_made_up(symbol: str) -> bool:
    """Return whether fairseq-preprocess added a symbol to the dictionary to fill its size up; no text contains it."""
    return _MADE_UP.fullmatch(symbol) is not None


def own_symbols(dictionary: Dictionary) -> List[str]:
    """Return the symbols of a dictionary but for fairseq's own and those that fill it up."""
    return [symbol for symbol in dictionary.symbols[dictionary.nspecial :] if not is_made_up(symbol)]


def symbols_of_file(path: Path) -> List[str]:
    """Return the symbols of a dictionary's file, which may hold spaces, without those that fill it up."""
    lines = path.read_text(encoding="utf-8").splitlines()
    found = [line.rsplit(" ", 1)[0] for line in lines if line]
    return [symbol for symbol in found if not is_made_up(symbol)]


def never_written(dictionary: Dictionary) -> List[int]:
    """Numbers of the symbols that a language model never writes: padding, ``<s>``, ``<unk>`` and made-up ones."""
    made_up = [number for number, symbol in enumerate(dictionary.symbols) if is_made_up(symbol)]
    return [dictionary.pad(), dictionary.bos(), dictionary.unk(), *made_up]


def text_unit(folder: Path, dictionary: Dictionary, saved: Optional[str] = None) -> TextUnit:
    """The unit of the binarised data in a folder; see :func:`unit_name`.

    Raises:
        ValueError: if ``unit.json`` is broken, or the model of subwords is missing or broken.
    """
    name = unit_name(folder, dictionary, saved)
    if name != SubwordUnit.name:
        return ByteUnit() if name == ByteUnit.name else TextUnit()
    model = folder / MODEL_FILE
    if not model.is_file():
        raise ValueError(
            f"{model} does not exist, but the model was trained on subwords: copy it from the data that it was trained "
            f"on, or give --bpe sentencepiece --sentencepiece-model FILE"
        )
    return SubwordUnit(model)
