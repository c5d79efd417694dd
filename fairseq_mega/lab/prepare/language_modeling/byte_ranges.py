"""Parts of a long text file as byte ranges: consecutive parts, or blocks held out at even distances."""

import re
from pathlib import Path
from typing import BinaryIO, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence

from fairseq_mega.lab.prepare.options import BLOCKS, HELD_OUT_SHARE
from fairseq_mega.lab.prepare.splits import SPLITS

BLOCK = 1 << 18
WHITE_SPACE = re.compile(rb"\s")
LONGEST_CHARACTER, CONTINUATION = 4, bytes(range(0x80, 0xC0))  # of a character in UTF-8, in bytes


class ByteRange(NamedTuple):
    """The bytes of a file from `begin` up to, but not including, `end`."""

    begin: int
    end: int


class NothingLeft(ValueError):
    """A split has no text, because the places to cut at are too far apart."""


def whole(path: Path) -> List[ByteRange]:
    """Return the range of a whole file."""
    return [ByteRange(0, path.stat().st_size)]


def size_of(ranges: Sequence[ByteRange]) -> int:
    """Return the number of bytes in all ranges."""
    return sum(part.end - part.begin for part in ranges)


def read_ranges(stream: BinaryIO, ranges: Sequence[ByteRange]) -> Iterator[bytes]:
    """Yield the bytes of the ranges in their order, in blocks of 256 KiB at most."""
    for part in ranges:
        stream.seek(part.begin)
        left = part.end - part.begin
        while left:
            block = stream.read(min(left, BLOCK))
            if not block:
                raise ValueError(f"{stream.name}: the file ended {left} bytes too early; it changed while it was read")
            left -= len(block)
            yield block


def consecutive_ranges(path: Path, sizes: Sequence[int]) -> Dict[str, List[ByteRange]]:
    """Cut a file into train, valid and test of exactly these sizes in bytes, even within lines.

    Raises:
        ValueError: the sizes do not add up to the size of the file.
    """
    found = path.stat().st_size
    if len(sizes) != len(SPLITS) or sum(sizes) != found:
        raise ValueError(
            f"{path}: splits of {', '.join(map(str, sizes))} bytes need a file of {sum(sizes)} bytes, found {found}; "
            "give the whole, unaltered file"
        )
    ranges, begin = {}, 0
    for split, size in zip(SPLITS, sizes):
        ranges[split] = [ByteRange(begin, begin + size)]
        begin += size
    return ranges


def held_out_ranges(
    path: Path,
    splits: Sequence[str],
    blocks: int = BLOCKS,
    share: float = HELD_OUT_SHARE,
    limit: Optional[int] = None,
    place: Optional[Callable[[BinaryIO, int], int]] = None,
) -> Dict[str, List[ByteRange]]:
    """Cut a file into train and the held-out `splits`, which are spread over the whole file.

    The file is cut into `blocks` equal blocks. The last `share` of each block belongs to the last split, the `share`
    before to the split before, and the rest to train. All cuts are moved to the next `place`.

    Args:
        path: the text; only a few bytes around each cut are read.
        splits: the held-out splits, of valid and test.
        limit: use this many bytes only, in equal parts from the beginning of every block.
        place: returns the first position from an offset on where the file may be cut; None: line_end.

    Returns:
        Ranges of train and of `splits`, ascending and without overlap; without `limit` they cover the file.

    Raises:
        ValueError: shares that leave nothing to train.
        NothingLeft: a text too short for a line in every split.
    """
    if splits and not 0 < share * len(splits) < 1:
        raise ValueError(f"the share held out per split is {share}; give a number above 0 and below {1 / len(splits)}")
    size = path.stat().st_size
    used = size if limit is None else min(limit, size)
    order = ["train", *splits]
    ranges: Dict[str, List[ByteRange]] = {split: [] for split in order}
    searched, found = 0, -1
    with open(path, "rb") as stream:
        for number in range(blocks):
            begin, end = number * size // blocks, (number + 1) * size // blocks
            length = min((number + 1) * used // blocks - number * used // blocks, end - begin)
            edges = [begin, *(begin + length - round(length * share * n) for n in range(len(splits), -1, -1))]
            ends = []
            for edge in edges:
                if not searched <= edge <= found:  # a line that contains several edges is read once
                    searched, found = edge, (place or line_end)(stream, edge)
                ends.append(found)
            for split, first, last in zip(order, ends, ends[1:]):
                if last > first:
                    ranges[split].append(ByteRange(first, last))
    for split in order:
        if not ranges[split]:
            raise NothingLeft(
                f"{path}: no line is left for {split} of {used} bytes cut into {blocks} blocks, {share} of them for "
                f"each of {', '.join(splits)}; give more text, or fewer blocks"
            )
    return ranges


def line_end(stream: BinaryIO, offset: int) -> int:
    """Return the first position from `offset` on at which a line begins, or the end of the file."""
    if offset == 0:
        return 0
    stream.seek(offset - 1)
    stream.readline()
    return stream.tell()


def word_begin(stream: BinaryIO, offset: int) -> int:
    """Return the first position from `offset` on that follows white space of ASCII, or the end of the file."""
    if offset == 0:
        return 0
    stream.seek(offset - 1)
    place = offset - 1
    while block := stream.read(BLOCK):
        found = WHITE_SPACE.search(block)
        if found:
            return place + found.end()
        place += len(block)
    return place


def character_begin(stream: BinaryIO, offset: int) -> int:
    """Return the first position from `offset` on where a character of UTF-8 may begin: any byte in other data."""
    stream.seek(offset)
    following = stream.read(LONGEST_CHARACTER - 1)
    return offset + len(following) - len(following.lstrip(CONTINUATION))
