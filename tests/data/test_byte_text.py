"""Bytes as decimal tokens, in any blocks."""

from hypothesis import given
from hypothesis import strategies as st

from fairseq_mega.data.byte_text import encode

# Line feeds are frequent, so that empty lines and endings of all kinds come up.
texts = st.lists(st.one_of(st.just(10), st.integers(0, 255)), max_size=60).map(bytes)


@given(texts, st.integers(0, 60))
def test_every_byte_is_its_number_and_the_line_feed_ends_the_line(text: bytes, cut: int) -> None:
    found = (encode(text[:cut]) + encode(text[cut:])).decode("ascii")
    assert [line.split() for line in found.split("\n")] == [list(map(str, line)) for line in text.split(b"\n")]
