"""Bytes as decimal tokens: there and back, in any blocks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairseq_mega.data.byte_text import decode, encode

# Line feeds are frequent, so that empty lines and endings of all kinds come up.
texts = st.lists(st.one_of(st.just(10), st.integers(0, 255)), max_size=60).map(bytes)


def test_every_byte_is_its_number_and_the_line_feed_ends_the_line() -> None:
    lines = encode(b"Hi\n\n\r\xff 0").decode("ascii").split("\n")
    assert [line.split() for line in lines] == [["72", "105"], [], ["13", "255", "32", "48"]]


@given(texts)
def test_decoding_gives_the_bytes_back(text: bytes) -> None:
    assert decode(encode(text).decode("ascii")) == text


@given(texts, st.integers(0, 60))
def test_blocks_can_be_cut_anywhere(text: bytes, cut: int) -> None:
    assert encode(text[:cut]) + encode(text[cut:]) == encode(text)


@pytest.mark.parametrize("token", ["256", "-1", "x", "<unk>", "1.0", "１"])
def test_what_is_no_byte_is_refused_with_its_line(token: str) -> None:
    with pytest.raises(ValueError, match=f"line 2: '{token}' is not a byte; give decimal numbers from 0 to 255"):
        decode(f"65 66\n67 {token}\n")
