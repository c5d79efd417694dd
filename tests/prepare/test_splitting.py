"""A text cut into splits: whole lines, nothing twice, nothing lost; words and bytes as fairseq counts them."""

import io
from itertools import chain
from pathlib import Path
from typing import Dict, List

import pytest
from fairseq.tokenizer import tokenize_line
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from fairseq_mega.data.text_units import encode_bytes
from fairseq_mega.lab.prepare.language_modeling.splitting import (
    ByteRange,
    held_out_ranges,
    read_words,
    write_bytes,
)

HELD_OUT = ("valid", "test")


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(("limit", "counts"), [(None, (450, 25, 25)), (11 * 2000, (90, 5, 5))])
def test_every_split_comes_from_every_block(limit: "int | None", counts: "tuple[int, ...]", tmp_path: Path) -> None:
    """Each of 10,000 lines says where in the text it stands; a limit takes equal parts from every block."""
    text = write(tmp_path / "text", b"".join(b"line %05d\n" % number for number in range(10_000)))
    ranges = held_out_ranges(text, HELD_OUT, 0.05, limit)
    first = 0
    for split, count in zip(("train", *HELD_OUT), counts):
        content = b"".join(text.read_bytes()[part.begin : part.end] for part in ranges[split])
        want = [number for block in range(0, 10_000, 500) for number in range(block + first, block + first + count)]
        assert [int(line[5:]) for line in content.splitlines()] == want
        first += count


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
        ranges: Dict[str, List[ByteRange]] = held_out_ranges(path, HELD_OUT, share, limit, blocks)
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


# Line feeds are frequent, so that empty lines and endings of all kinds come up.
@given(st.lists(st.one_of(st.just(10), st.integers(0, 255)), max_size=60).map(bytes), st.integers(0, 60))
def test_bytes_are_counted_as_fairseq_will(tmp_path_factory: pytest.TempPathFactory, text: bytes, cut: int) -> None:
    """fairseq reads the encoded text line by line, cuts it at blanks and appends </s> to every line."""
    folder = tmp_path_factory.mktemp("bytes")
    (folder / "text").write_bytes(text)
    cut = min(cut, len(text))
    found = write_bytes(folder / "text", [ByteRange(0, cut), ByteRange(cut, len(text))], folder / "out")
    assert (folder / "out").read_bytes() == encode_bytes(text)
    lines = list(map(tokenize_line, io.StringIO(encode_bytes(text).decode("ascii"))))
    tokens = sum(len(line) + 1 for line in lines)
    assert found == {"lines": len(lines), "tokens": tokens, "bytes": len(text), "symbols": len({*chain(*lines)})}
    assert tokens - len(text) == (0 if text.endswith(b"\n") or not text else 1)


@given(st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"])))
def test_words_and_lines_are_those_of_fairseq(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = write(tmp_path_factory.getbasetemp() / "words", text.encode("utf-8"))
    lines = (text[1:] if text.startswith("\ufeff") else text).split("\n")
    if text.endswith("\n") or not text:
        lines.pop()
    assert list(read_words(path, [ByteRange(0, path.stat().st_size)])) == [tokenize_line(line) for line in lines]


@pytest.mark.parametrize("word", [b"\xff", b"<pad>", b"</s>"])
def test_bad_words_are_named_with_their_line(word: bytes, tmp_path: Path) -> None:
    """Bytes that are no UTF-8, and words that fairseq reads as its own tokens; also in a later range."""
    path = write(tmp_path / "text", b"one\ntwo\nthree " + word + b"\n")
    assert list(read_words(path, [ByteRange(0, 3), ByteRange(4, 8)])) == [["one"], ["two"]]
    with pytest.raises(ValueError, match="text, line 3: "):
        list(read_words(path, [ByteRange(8, path.stat().st_size)]))
