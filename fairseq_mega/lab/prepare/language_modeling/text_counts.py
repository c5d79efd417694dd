"""The counts of a text as fairseq will see it once it is binarised."""

from typing import Iterable, NamedTuple

from fairseq_mega.data.byte_text import NEWLINE


class TextCounts(NamedTuple):
    """Counts of a split."""

    lines: int
    tokens: int  # one </s> per line included
    bytes: int


class ByteCounter:
    """Counts the bytes, lines, tokens and different bytes of the blocks that pass through it."""

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
        """Number of different bytes seen, the line feed not counted."""
        return sum(self._seen) - self._seen[NEWLINE]
