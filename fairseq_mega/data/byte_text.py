"""Text as bytes: every byte is a token, its decimal number, and the line feed ends a line.

This is the form in which enwik8 is binarised: fairseq appends `</s>` to every line, which stands for the line feed, so
that a text of n bytes becomes n tokens. Only where the text does not end in a line feed, `</s>` is one token more.
"""

from typing import Iterable, NamedTuple

NEWLINE = 10
# The blank behind the last number of a line means nothing to fairseq, and every byte can be encoded by itself.
_TOKENS = [b"\n" if byte == NEWLINE else b"%d " % byte for byte in range(256)]


class TextCounts(NamedTuple):
    """What a split holds once fairseq has binarised it."""

    lines: int
    tokens: int  # one </s> per line included
    bytes: int


def encode(block: bytes) -> bytes:
    """Return the decimal numbers of a block of bytes; encoded blocks can be joined like the blocks themselves."""
    return b"".join(map(_TOKENS.__getitem__, block))


def decode(text: str) -> bytes:
    """Return the bytes that lines of decimal numbers stand for; the inverse of :func:`encode`.

    Raises:
        ValueError: a token that is no number from 0 to 255 (names it and its line).
    """
    lines = []
    for number, line in enumerate(text.split("\n"), start=1):
        values = []
        for token in line.split():
            if not (token.isascii() and token.isdigit() and int(token) < 256):
                raise ValueError(f"line {number}: {token!r} is no byte; decimal numbers from 0 to 255 are needed")
            values.append(int(token))
        lines.append(bytes(values))
    return b"\n".join(lines)


class ByteCounter:
    """Counts the bytes of blocks that pass, and knows their number of lines, tokens and different bytes."""

    def __init__(self) -> None:
        self._bytes = self._newlines = 0
        self._last = b"\n"
        self._seen = bytearray(256)

    def count(self, blocks: Iterable[bytes]) -> Iterable[bytes]:
        """Pass the blocks on and count them."""
        for block in blocks:
            self._bytes += len(block)
            self._newlines += block.count(b"\n")
            self._last = block[-1:] or self._last
            for byte in set(block):
                self._seen[byte] = 1
            yield block

    @property
    def counts(self) -> TextCounts:
        """Lines, tokens and bytes so far; an unfinished last line is a line and gets its </s>."""
        unfinished = self._last != b"\n"
        return TextCounts(self._newlines + unfinished, self._bytes + unfinished, self._bytes)

    @property
    def symbols(self) -> int:
        """How many different bytes were seen, the line feed not counted."""
        return sum(self._seen) - self._seen[NEWLINE]
