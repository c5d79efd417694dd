"""Text as words: lines of UTF-8 split at white space, with errors that name the place."""

from pathlib import Path
from typing import BinaryIO, Iterator, List, Sequence

from fairseq_mega.lab.prepare.language_modeling.byte_ranges import ByteRange, whole
from fairseq_mega.lab.prepare.text_files import not_utf8

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# Words that fairseq would read as its own symbols: padding, for instance, is never scored. <unk> may occur in a text.
RESERVED = frozenset(("<s>", "<pad>", "</s>"))


def read_words(path: Path, ranges: Sequence[ByteRange], replace_invalid: bool = False) -> Iterator[List[str]]:
    r"""Yield the words of every line in the ranges of a UTF-8 file, which begin and end at ends of lines or words.

    Lines end at `\n` only, and are split into words as by fairseq. A byte-order mark is left out.

    Args:
        replace_invalid: read bytes that are not UTF-8 as U+FFFD.

    Raises:
        ValueError: for bytes that are not UTF-8, a NUL byte or a word reserved by fairseq; names file, line and byte
            offset.
    """
    with open(path, "rb") as stream:
        for part in ranges:
            stream.seek(part.begin)
            offset = part.begin
            while offset < part.end:
                line = stream.readline(part.end - offset)
                if not line:
                    raise ValueError(f"{path}: the file ended at byte {offset}; it changed while it was read")
                yield _words(stream, line, offset, replace_invalid)
                offset += len(line)


def _words(stream: BinaryIO, line: bytes, offset: int, replace_invalid: bool) -> List[str]:
    skipped = len(BYTE_ORDER_MARK) if offset == 0 and line.startswith(BYTE_ORDER_MARK) else 0
    try:
        text = line[skipped:].decode("utf-8", "replace" if replace_invalid else "strict")
    except UnicodeDecodeError as error:
        start = skipped + error.start
        raise ValueError(
            f"{_place(stream, offset)}: byte 0x{line[start]:02x} at byte offset {offset + start} of the file (column "
            f"{start + 1}) is not UTF-8; {not_utf8(stream.name)}, or read it as bytes with --unit bytes"
        ) from None
    if "\0" in text:
        at = offset + skipped + line[skipped:].index(b"\0")
        raise ValueError(
            f"{_place(stream, offset)}: NUL byte at byte offset {at} of the file: this is not text; remove these "
            f"bytes, or read the file as bytes with --unit bytes"
        )
    words = text.split()
    if not RESERVED.isdisjoint(words):
        word = next(word for word in words if word in RESERVED)
        raise ValueError(
            f"{_place(stream, offset)}: the word {word!r} is reserved by fairseq; replace or remove it "
            "(the end of a line becomes </s> by itself)"
        )
    return words


def _place(stream: BinaryIO, offset: int) -> str:
    """Name the file and the number of the line at this offset; the lines are counted only for an error."""
    stream.seek(0)
    lines, left = 1, offset
    while left:
        block = stream.read(min(left, 1 << 20))
        lines += block.count(b"\n")
        left -= len(block)
    return f"{stream.name}, line {lines}"


def check_words(path: Path, replace_invalid: bool = False) -> None:
    """Read a text file to its end.

    Raises:
        OSError: no such file, or a folder.
        ValueError: an empty file, a file without any word, or one that :func:`read_words` refuses.
    """
    check_not_empty(path)
    found = False
    for words in read_words(path, whole(path), replace_invalid):
        found = found or bool(words)
    if not found:
        raise ValueError(f"{path}: the file holds white space only, no word; give a file with text")


def check_not_empty(path: Path) -> None:
    """Raise OSError for a missing file or a folder, ValueError for an empty file."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give a text file")
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file; give a text file")
    if path.stat().st_size == 0:
        raise ValueError(f"{path} is empty; give a file with text")
