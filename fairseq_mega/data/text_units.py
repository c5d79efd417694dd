"""Units of tokens (words, bytes, subwords): convert text to tokens and back.

``card.json`` beside ``dict.txt`` names the unit: ``{"unit": "bytes"}``. Without it, as in folders of
fairseq-preprocess, the unit is the checkpoint's, else words.
"""

import codecs
import hashlib
import logging
import re
from pathlib import Path
from typing import Callable, Dict, Iterable, Iterator, List, Sequence, Tuple

import numpy as np
from fairseq.data import Dictionary

from fairseq_mega.compat.features.encoders import SUBWORDS_FILE

from .card import CARD_FILE, UNIT, settings_of_data
from .text_cleaning import clean, steps_of_model

logger = logging.getLogger(__name__)

MODEL_FILE = SUBWORDS_FILE
LINE_END = "\n"  # stands for </s> among the tokens of a text
REPLACEMENT = "\ufffd"
NEWLINE = 10
MULTIPLE = 8  # the size of a vocabulary is a multiple, for fast matrix products
_BYTES = {LINE_END: NEWLINE, **{str(byte): byte for byte in range(256)}}  # by their tokens
_BYTE_SUBWORDS = {f"<0x{byte:02X}>": byte for byte in range(256)}
_SPELLED = {code: 0xF0000 + code for code in range(0x3001) if chr(code).isspace() and chr(code) != " "}
_UNSPELLED = {spelled: code for code, spelled in _SPELLED.items()}
_MADE_UP = re.compile(r"madeupword\d+")


class TextUnit:
    """Unit of words, whose text is their tokens; base of the other units.

    The interface is that of fairseq's ``--bpe``: encode a line to tokens separated by blanks, and decode tokens.
    """

    name = "words"
    parts_lines = True  # True: </s> ends a line; False: </s> ends a document, and line ends are tokens

    def encode(self, line: str) -> str:
        """Return the tokens, separated by blanks, of a line of text, or of a document unless ``parts_lines``."""
        return line

    def decode(self, tokens: str) -> str:
        """Return the line of text of tokens, without an incomplete character at the end."""
        return "".join(self.pieces(tokens.split()))

    def pieces(self, tokens: Iterable[str], before: str = "") -> Iterator[str]:
        """Yield the text of each token; the joined pieces are the text.

        Args:
            tokens: tokens of the dictionary, with ``LINE_END`` between lines.
            before: text before the tokens; no blank is added at the beginning of a line or after another blank.
        """
        blank = before[-1:].isspace() or not before
        for token in tokens:
            text = token if token == LINE_END else self._spaced(token)
            piece = text.lstrip(" ") if blank else text
            blank = text == LINE_END or (blank and not piece)
            yield piece

    def settled(self, text: str) -> int:
        """Return the length of the longest beginning of a text whose tokens do not depend on the text after."""
        return next((end for end in range(len(text), 0, -1) if text[end - 1].isspace()), 0)

    def _spaced(self, token: str) -> str:
        return f" {token}"


class ByteUnit(TextUnit):
    """Unit of bytes of UTF-8, as decimal numbers; see :func:`encode_bytes`."""

    name = "bytes"

    def encode(self, line: str) -> str:
        return " ".join(map(str, line.encode("utf-8", "surrogateescape")))

    def settled(self, text: str) -> int:
        return len(text)

    def pieces(self, tokens: Iterable[str], before: str = "") -> Iterator[str]:
        """Yield the text of each byte: "" within a character, U+FFFD for invalid UTF-8 and for other tokens."""
        return (text + REPLACEMENT * bool(other) for text, other in _characters(tokens, _BYTES))


# fairseq ignores the blank after the last number of a line, so every byte can be encoded separately.
_TOKENS = [b"\n" if byte == NEWLINE else b"%d " % byte for byte in range(256)]


def encode_bytes(block: bytes) -> bytes:
    """Return the decimal numbers of a block of bytes, the line feed as it is; encoded blocks can be joined.

    enwik8 is binarised in this form. fairseq appends ``</s>`` to every line in place of the line feed, so a text of n
    bytes becomes n tokens, or n + 1 if the text does not end with a line feed.
    """
    return b"".join(map(_TOKENS.__getitem__, block))


class SubwordUnit(TextUnit):
    """Unit of subwords of a sentencepiece model; text is cleaned by the model's recorded steps.

    Args:
        model: file of the model.

    Raises:
        ValueError: if the file is not a sentencepiece model.
    """

    name = "subwords"

    def __init__(self, model: Path) -> None:
        import sentencepiece

        try:
            self.processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
        except (RuntimeError, OSError) as error:
            raise ValueError(f"{model} is not a sentencepiece model ({error}): get a new copy") from error
        self.cleaning = steps_of_model(model)

    def encode(self, line: str) -> str:
        readable = line.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # replace invalid UTF-8
        return " ".join(map(spelled, self.processor.encode(clean(readable, self.cleaning), out_type=str)))

    def settled(self, text: str) -> int:
        """Return the length of the text up to its last line end, see :meth:`TextUnit.settled`."""
        return settled_lines(text)

    def pieces(self, tokens: Iterable[str], before: str = "") -> Iterator[str]:
        """Yield text like the base class; bytes such as ``<0x0A>`` are joined to characters."""
        decoded = _characters(tokens, _BYTE_SUBWORDS)
        return super().pieces((token if token == LINE_END else text + token for text, token in decoded), before)

    def _spaced(self, token: str) -> str:
        return unspelled(token).replace("\u2581", " ")


def _characters(tokens: Iterable[str], byte_of: Dict[str, int]) -> Iterator[Tuple[str, str]]:
    """Yield for each token the characters that the bytes so far complete, and the token ("" for a byte)."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for token in tokens:
        if token in byte_of:
            yield decoder.decode(bytes([byte_of[token]])), ""
        else:
            yield decoder.decode(b"", final=True), token


class DocumentUnit(SubwordUnit):
    """Unit of subwords of a sentencepiece model for whole documents, with line ends and all blanks as subwords."""

    parts_lines = False

    def pieces(self, tokens: Iterable[str], before: str = "") -> Iterator[str]:
        """Yield text with every blank, except for the one that sentencepiece adds before a document."""
        begins = not before
        for characters, token in _characters(tokens, _BYTE_SUBWORDS):
            text = characters + self._spaced(token)
            yield text[1:] if begins and token and text.startswith(" ") else text
            begins = token == LINE_END


class SubwordVocabulary:
    """Subwords of a sentencepiece model after fairseq's four special tokens.

    A text becomes its subwords and ``</s>``. Control tokens of the model, such as ``<s>``, occur in no text and are
    omitted; the model's unknown subword becomes fairseq's ``<unk>``.

    Args:
        model: file of the model.

    Raises:
        ValueError: if the file does not exist, or is not a sentencepiece model.
    """

    def __init__(self, model: Path) -> None:
        unit = SubwordUnit(model)
        self.processor, self.cleaning = unit.processor, unit.cleaning
        self.dictionary = Dictionary()
        self.index_of = np.full(self.processor.get_piece_size(), self.dictionary.unk(), dtype=np.int32)  # (pieces,)
        for subword in range(len(self.index_of)):
            if not (self.processor.is_unknown(subword) or self.processor.is_control(subword)):
                self.index_of[subword] = self.dictionary.add_symbol(spelled(self.processor.id_to_piece(subword)))
        self.dictionary.pad_to_multiple_(MULTIPLE)
        self.digest = hashlib.sha256(self.processor.serialized_model_proto()).hexdigest()  # of the model

    def encode(self, texts: Sequence[str], threads: int = 1) -> List[np.ndarray]:
        """Return the token ids of each text, (L,) int32, with ``</s>`` at the end."""
        end = np.array([self.dictionary.eos()], dtype=np.int32)
        cleaned = [clean(text, self.cleaning) for text in texts]
        subwords = self.processor.encode(cleaned, out_type=int, num_threads=threads)
        return [np.concatenate([self.index_of[np.array(found, dtype=np.int64)], end]) for found in subwords]


def settled_lines(text: str) -> int:
    """Return the length of the whole lines at the beginning of a text."""
    return text.rfind(LINE_END) + 1


def encode_after_line_end(encode: Callable[[str], str], text: str) -> str:
    """Return the tokens of a text after a line end within a document, where sentencepiece adds no blank.

    Args:
        encode: maps a document to tokens, separated by blanks.
        text: the text without the line end.
    """
    return " ".join(encode(LINE_END + text).split()[len(encode(LINE_END).split()) :])


def spelled(subword: str) -> str:
    """Return a subword as a token of a dictionary: white space other than blanks becomes private-use characters."""
    return subword.translate(_SPELLED)


def unspelled(tokens: str) -> str:
    """Return the subwords of tokens: the inverse of :func:`spelled`."""
    return tokens.translate(_UNSPELLED)


def unit_name(folder: Path, saved: str = "") -> str:
    """Return the name of the unit of binarised data: as the folder records it, else ``saved``."""
    return settings_of_data(folder).get(UNIT, saved)


def is_made_up(token: str) -> bool:
    """Return whether fairseq-preprocess added a token to pad the size of the dictionary; no text contains it."""
    return _MADE_UP.fullmatch(token) is not None


def own_tokens(dictionary: Dictionary) -> List[str]:
    """Return the tokens of a dictionary without fairseq's special tokens and those that pad its size."""
    return [token for token in dictionary.symbols[dictionary.nspecial :] if not is_made_up(token)]


def tokens_of_file(path: Path) -> List[str]:
    """Return the tokens of a dictionary's file, which may contain spaces, without those that pad its size."""
    lines = path.read_text(encoding="utf-8").splitlines()
    found = [line.rsplit(" ", 1)[0] for line in lines if line]
    return [token for token in found if not is_made_up(token)]


def never_written(dictionary: Dictionary) -> List[int]:
    """Return the ids of tokens that are never generated: padding, ``<s>``, ``<unk>`` and padding of the size."""
    made_up = [index for index, token in enumerate(dictionary.symbols) if is_made_up(token)]
    return [dictionary.pad(), dictionary.bos(), dictionary.unk(), *made_up]


def text_unit(folder: Path, saved: str = "") -> TextUnit:
    """Return the unit of the binarised data in a folder; see :func:`unit_name`; words, with a warning, without a name.

    Raises:
        KeyError: if the unit is unknown.
        ValueError: if the subword model is missing or broken.
    """
    name = unit_name(folder, saved)
    units: Dict[str, Callable[[], TextUnit]] = {
        "": TextUnit,
        "words": TextUnit,
        "bytes": ByteUnit,
        "subwords": lambda: SubwordUnit(folder / MODEL_FILE),
    }
    if not name:
        logger.warning(
            f'{folder / CARD_FILE} does not exist: text is read as words; for bytes write {{"unit": "bytes"}} to it'
        )
    return units[name]()
