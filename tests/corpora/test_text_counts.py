"""Bytes are counted as fairseq will count their tokens, in any blocks."""

import io

import pytest
from fairseq.tokenizer import tokenize_line
from hypothesis import given
from hypothesis import strategies as st

from fairseq_mega.data.byte_text import encode
from fairseq_mega.lab.prepare.language_modeling.text_counts import ByteCounter, TextCounts

# Line feeds are frequent, so that empty lines and endings of all kinds come up.
texts = st.lists(st.one_of(st.just(10), st.integers(0, 255)), max_size=60).map(bytes)


def counts_of(*blocks: bytes) -> ByteCounter:
    counter = ByteCounter()
    assert b"".join(counter.count(blocks)) == b"".join(blocks)
    return counter


@given(texts, st.integers(0, 60))
def test_the_counts_are_those_of_fairseq(text: bytes, cut: int) -> None:
    """fairseq reads the encoded text line by line, cuts it at blanks and appends </s> to every line."""
    lines = io.StringIO(encode(text).decode("ascii")).readlines()
    counter = counts_of(text[:cut], text[cut:])
    tokens = sum(len(tokenize_line(line)) + 1 for line in lines)
    assert counter.counts == TextCounts(len(lines), tokens, len(text))
    assert counter.symbols == len({token for line in lines for token in tokenize_line(line)})


@pytest.mark.parametrize(("text", "tokens"), [(b"ab\ncd\n", 6), (b"ab\ncd", 6), (b"\n", 1), (b"a", 2), (b"", 0)])
def test_a_text_has_as_many_tokens_as_bytes_unless_its_last_line_is_unfinished(text: bytes, tokens: int) -> None:
    assert counts_of(text).counts.tokens == tokens
    assert tokens - len(text) == (0 if text.endswith(b"\n") or not text else 1)
