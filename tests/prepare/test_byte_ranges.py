"""Held-out blocks: whole lines, nothing twice, nothing lost, and from everywhere in the text."""

from pathlib import Path
from typing import Dict, List

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from fairseq_mega.lab.prepare.language_modeling.splitting import (
    ByteRange,
    consecutive_ranges,
    held_out_ranges,
    size_of,
)

HELD_OUT = ("valid", "test")


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def lines_of(path: Path, ranges: List[ByteRange]) -> List[bytes]:
    content = path.read_bytes()
    return b"".join(content[part.begin : part.end] for part in ranges).splitlines(keepends=True)


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
        assert b"".join(text[part.begin : part.end] for part in ordered) == text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"share": 0.5}, "--held-out is 0.5"),
        ({"share": 0.0}, "--held-out is 0.0"),
        ({"limit": 15, "blocks": 1}, "no line is left for valid of 15 bytes cut into 1 blocks"),
    ],
)
def test_impossible_arguments_are_named(numbered: Path, arguments: Dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        held_out_ranges(numbered, HELD_OUT, **arguments)


def test_consecutive_parts_have_exactly_their_sizes(tmp_path: Path) -> None:
    path = write(tmp_path / "text", b"aaa\nbbcd")
    ranges = consecutive_ranges(path, (6, 1, 1))
    assert ranges == {"train": [ByteRange(0, 6)], "valid": [ByteRange(6, 7)], "test": [ByteRange(7, 8)]}
    with pytest.raises(ValueError, match="need 9 bytes, found 8"):
        consecutive_ranges(path, (6, 1, 2))
