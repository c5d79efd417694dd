"""Held-out blocks: whole lines, nothing twice, nothing lost, and from everywhere in the text."""

from pathlib import Path
from typing import Callable, Dict, List

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from fairseq_mega.lab.prepare.language_modeling import byte_ranges
from fairseq_mega.lab.prepare.language_modeling.byte_ranges import (
    ByteRange,
    NothingLeft,
    character_begin,
    consecutive_ranges,
    held_out_ranges,
    read_ranges,
    size_of,
    whole,
    word_begin,
)

HELD_OUT = ("valid", "test")


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def lines_of(path: Path, ranges: List[ByteRange]) -> List[bytes]:
    with open(path, "rb") as stream:
        return b"".join(read_ranges(stream, ranges)).splitlines(keepends=True)


@pytest.fixture
def numbered(tmp_path: Path) -> Path:
    """10,000 lines that say where in the text they stand."""
    return write(tmp_path / "text", b"".join(b"line %05d\n" % number for number in range(10_000)))


def test_valid_and_test_come_from_every_block(numbered: Path) -> None:
    ranges = held_out_ranges(numbered, HELD_OUT, blocks=20, share=0.05)
    for split, first in (("train", 0), ("valid", 450), ("test", 475)):
        assert len(ranges[split]) == 20
        count = 450 if split == "train" else 25
        want = [number for block in range(0, 10_000, 500) for number in range(block + first, block + first + count)]
        assert [int(line[5:]) for line in lines_of(numbered, ranges[split])] == want


def test_a_limit_takes_equal_parts_from_every_block(numbered: Path) -> None:
    ranges = held_out_ranges(numbered, HELD_OUT, blocks=20, share=0.05, limit=11 * 2000)
    for split, first, count in (("train", 0, 90), ("valid", 90, 5), ("test", 95, 5)):
        want = [number for block in range(0, 10_000, 500) for number in range(block + first, block + first + count)]
        assert [int(line[5:]) for line in lines_of(numbered, ranges[split])] == want
    everything = held_out_ranges(numbered, HELD_OUT)
    assert held_out_ranges(numbered, HELD_OUT, limit=10**9) == everything
    assert sum(map(size_of, everything.values())) == numbered.stat().st_size


def test_one_block_holds_the_end_out_and_nothing_held_out_leaves_all(numbered: Path) -> None:
    ranges = held_out_ranges(numbered, ["test"], blocks=1, share=0.1)
    assert ranges == {"train": [ByteRange(0, 99_000)], "test": [ByteRange(99_000, 110_000)]}
    kept = held_out_ranges(numbered, [], blocks=3)
    assert list(kept) == ["train"]
    assert size_of(kept["train"]) == 110_000


@settings(suppress_health_check=[HealthCheck.filter_too_much])  # most short texts have no line left for a split
@given(
    st.lists(st.binary(max_size=12).map(lambda line: line.replace(b"\n", b"")), max_size=80),
    st.booleans(),
    st.integers(1, 7),
    st.floats(0.01, 0.49),
    st.one_of(st.none(), st.integers(1, 700)),
)
def test_whole_lines_nothing_twice_nothing_lost(
    tmp_path_factory: pytest.TempPathFactory, lines: List[bytes], finished: bool, blocks: int, share: float, limit
) -> None:
    text = b"\n".join(lines) + (b"\n" if finished else b"")
    path = write(tmp_path_factory.getbasetemp() / "ranges", text)
    try:
        ranges: Dict[str, List[ByteRange]] = held_out_ranges(path, HELD_OUT, blocks, share, limit)
    except ValueError as error:
        assert "no line is left for" in str(error)
        assume(False)
    ordered = sorted(part for of_split in ranges.values() for part in of_split)
    for part in ordered:
        assert part.begin < part.end
        assert part.begin == 0 or text[part.begin - 1 : part.begin] == b"\n"
        assert part.end == len(text) or text[part.end - 1 : part.end] == b"\n"
    assert all(first.end <= second.begin for first, second in zip(ordered, ordered[1:]))
    for of_split in ranges.values():
        assert of_split == sorted(of_split)
    if limit is None or limit >= len(text):
        with open(path, "rb") as stream:
            assert b"".join(read_ranges(stream, ordered)) == text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"share": 0.5}, "share held out per split is 0.5; give a number above 0 and below 0.5"),
        ({"share": 0.0}, "share held out per split is 0.0"),
        ({"limit": 15, "blocks": 1}, "no line is left for valid of 15 bytes cut into 1 blocks"),
    ],
)
def test_impossible_arguments_are_named(numbered: Path, arguments: Dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        held_out_ranges(numbered, HELD_OUT, **arguments)


def test_a_text_of_one_line_cannot_be_cut(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no line is left for valid .* give more text, or fewer blocks"):
        held_out_ranges(write(tmp_path / "text", b"x" * 5000), HELD_OUT)


def test_consecutive_parts_have_exactly_their_sizes(tmp_path: Path) -> None:
    path = write(tmp_path / "text", b"aaa\nbbcd")
    ranges = consecutive_ranges(path, (6, 1, 1))
    assert ranges == {"train": [ByteRange(0, 6)], "valid": [ByteRange(6, 7)], "test": [ByteRange(7, 8)]}
    for sizes in ((6, 1, 2), (6, 2)):
        with pytest.raises(ValueError, match=f"need a file of {sum(sizes)} bytes, found 8"):
            consecutive_ranges(path, sizes)


def test_reading_goes_in_blocks_and_notices_a_file_that_shrinks(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(byte_ranges, "BLOCK", 4)
    path = write(tmp_path / "text", b"0123456789")
    with open(path, "rb") as stream:
        assert list(read_ranges(stream, [ByteRange(1, 7), ByteRange(9, 10)])) == [b"1234", b"56", b"9"]
        assert list(read_ranges(stream, whole(path))) == [b"0123", b"4567", b"89"]
        with pytest.raises(ValueError, match="text: the file ended 2 bytes too early"):
            list(read_ranges(stream, [ByteRange(0, 12)]))


ONE_LINE = {
    "blanks": "wörter und wörter ".encode() * 400,
    "carriage returns": b"eine Zeile\rnoch eine\r" * 300,
    "two long lines": b"eins zwei drei " * 200 + b"\n" + b"vier " * 600,
    "a short last line": b"eins zwei drei " * 400 + b"\nvier\n",
}


@pytest.mark.parametrize("text", ONE_LINE.values(), ids=ONE_LINE)
@pytest.mark.parametrize("place", [word_begin, character_begin])
def test_a_text_of_few_lines_is_cut_within_them(text: bytes, place: Callable, tmp_path: Path) -> None:
    """Nothing is lost, every split has its share, and no word or character is cut in two."""
    path = write(tmp_path / "text", text)
    with pytest.raises(NothingLeft, match="no line is left"):
        held_out_ranges(path, HELD_OUT)
    ranges = held_out_ranges(path, HELD_OUT, place=place)
    pieces = sorted(part for split in ranges.values() for part in split)
    assert [part.begin for part in pieces] == [0, *(part.end for part in pieces[:-1])] and pieces[-1].end == len(text)
    for split in HELD_OUT:
        assert 0.02 < size_of(ranges[split]) / len(text) < 0.1
    for part in pieces:
        text[part.begin : part.end].decode("utf-8")
        assert place is character_begin or part.begin == 0 or text[part.begin - 1 : part.begin].isspace()


@pytest.mark.parametrize("offset", range(9))
def test_places_to_cut_at(offset: int, tmp_path: Path) -> None:
    text = "aü \t語b".encode()
    with write(tmp_path / "text", text).open("rb") as stream:
        assert word_begin(stream, offset) == [0, 4, 4, 4, 4, 5, 9, 9, 9][offset]
        assert character_begin(stream, offset) == [0, 1, 3, 3, 4, 5, 8, 8, 8][offset]
