"""Words of UTF-8 text: cut as fairseq cuts them, and refused with file, line and byte offset."""

from pathlib import Path
from typing import List

import pytest
from fairseq.tokenizer import tokenize_line
from hypothesis import given
from hypothesis import strategies as st

from fairseq_mega.lab.prepare.language_modeling.splitting import ByteRange, read_words


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def words_of(path: Path, replace_invalid: bool = False) -> List[List[str]]:
    return list(read_words(path, [ByteRange(0, path.stat().st_size)], replace_invalid))


@given(st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"])))
def test_words_and_lines_are_those_of_fairseq(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = write(tmp_path_factory.getbasetemp() / "words", text.encode("utf-8"))
    lines = (text[1:] if text.startswith("\ufeff") else text).split("\n")
    if text.endswith("\n") or not text:
        lines.pop()
    assert words_of(path) == [tokenize_line(line) for line in lines]


def test_only_the_ranges_are_read(tmp_path: Path) -> None:
    path = write(tmp_path / "text", "eins\nzwei drei\n\nvier\nfünf".encode())
    assert list(read_words(path, [ByteRange(5, 16), ByteRange(21, 26)])) == [["zwei", "drei"], [], ["fünf"]]


def test_a_byte_order_mark_is_no_part_of_the_first_word(tmp_path: Path) -> None:
    assert words_of(write(tmp_path / "text", "\ufefferster zweiter\r\n".encode())) == [["erster", "zweiter"]]


def test_the_line_is_counted_from_the_beginning_of_the_file_in_later_ranges_too(tmp_path: Path) -> None:
    path = write(tmp_path / "text", b"one\ntwo\nthree\xff\n")
    with pytest.raises(ValueError, match="text, line 3: .* byte 0xff"):
        list(read_words(path, [ByteRange(8, 15)]))


@pytest.mark.parametrize("word", ["<s>", "<pad>", "</s>"])
def test_words_that_fairseq_reserves_are_refused(word: str, tmp_path: Path) -> None:
    path = write(tmp_path / "text", f"a {word}b <unk>\nc {word} d\n".encode())
    with pytest.raises(ValueError, match=f"text, line 2: .*'{word}'"):
        words_of(path)


def test_invalid_bytes_can_be_replaced(tmp_path: Path) -> None:
    path = write(tmp_path / "text", b"fa\xe7ade\nok\n")
    assert words_of(path, replace_invalid=True) == [["fa\ufffdade"], ["ok"]]
