"""Bytes are counted as fairseq will count their tokens, in any blocks."""

import io
from pathlib import Path

import pytest
from fairseq.tokenizer import tokenize_line
from hypothesis import given
from hypothesis import strategies as st

from fairseq_mega.data.byte_text import encode
from fairseq_mega.lab.prepare.language_modeling.splitting import ByteRange, TextCounts, write_bytes

# Line feeds are frequent, so that empty lines and endings of all kinds come up.
texts = st.lists(st.one_of(st.just(10), st.integers(0, 255)), max_size=60).map(bytes)


@given(texts, st.integers(0, 60))
def test_the_counts_are_those_of_fairseq(tmp_path_factory: pytest.TempPathFactory, text: bytes, cut: int) -> None:
    """fairseq reads the encoded text line by line, cuts it at blanks and appends </s> to every line."""
    folder = tmp_path_factory.mktemp("bytes")
    (folder / "text").write_bytes(text)
    cut = min(cut, len(text))
    ranges = [ByteRange(0, cut), ByteRange(cut, len(text))]
    counts, symbols = write_bytes(folder / "text", ranges, folder / "out", "train")
    assert (folder / "out").read_bytes() == encode(text)
    lines = io.StringIO(encode(text).decode("ascii")).readlines()
    assert counts == TextCounts(len(lines), sum(len(tokenize_line(line)) + 1 for line in lines), len(text))
    assert symbols == len({token for line in lines for token in tokenize_line(line)})


@pytest.mark.parametrize(("text", "tokens"), [(b"ab\ncd\n", 6), (b"ab\ncd", 6), (b"\n", 1), (b"a", 2), (b"", 0)])
def test_a_text_has_as_many_tokens_as_bytes_unless_its_last_line_is_unfinished(
    tmp_path: Path, text: bytes, tokens: int
) -> None:
    (tmp_path / "text").write_bytes(text)
    counts, _ = write_bytes(tmp_path / "text", [ByteRange(0, len(text))], tmp_path / "out", "train")
    assert counts.tokens == tokens
    assert tokens - len(text) == (0 if text.endswith(b"\n") or not text else 1)
