"""Binarised data whose two files do not belong together, or are cut off: an error names the file at once."""

import pickle
import re
from pathlib import Path
from typing import Callable, Dict, Optional, Sequence, Tuple

import pytest
from fairseq.data.data_utils import load_indexed_dataset
from fairseq.data.dictionary import Dictionary
from fairseq.data.indexed_dataset import make_builder


def write(prefix: Path, *lengths: int) -> None:
    words = Dictionary()
    builder = make_builder(f"{prefix}.bin", impl="mmap", vocab_size=100)
    for length in lengths:
        builder.add_item(words.encode_line("w " * length, add_if_not_exist=True))
    builder.finalize(f"{prefix}.idx")


def cut(path: Path, count: int) -> None:
    path.write_bytes(path.read_bytes()[:-count])


def take(folder: Path, ending: str) -> None:
    (folder / f"b.{ending}").replace(folder / f"a.{ending}")


FAULTS: Dict[str, Callable[[Path], object]] = {
    r"a\.bin has 17 bytes, and its index .*a\.idx lists 20": lambda folder: cut(folder / "a.bin", 3),
    r"a\.bin has 34 bytes, and its index .*a\.idx lists 20": lambda folder: (folder / "b.bin").replace(
        folder / "a.bin"
    ),
    r"a\.bin has 20 bytes, and its index .*a\.idx lists 34": lambda folder: (folder / "b.idx").replace(
        folder / "a.idx"
    ),
}


@pytest.mark.parametrize("said", FAULTS)
def test_files_that_do_not_belong_together(said: str, tmp_path: Path) -> None:
    write(tmp_path / "a", 1, 3, 3)
    write(tmp_path / "b", 5, 10)
    FAULTS[said](tmp_path)
    with pytest.raises(ValueError, match=said) as found:
        load_indexed_dataset(str(tmp_path / "a"), None)
    assert re.search("again", str(found.value))


def test_whole_files_are_read(tmp_path: Path) -> None:
    """Also by another process, which opens them again."""
    write(tmp_path / "a", 1, 3, 0)
    data = pickle.loads(pickle.dumps(load_indexed_dataset(str(tmp_path / "a"), None)))
    assert [len(data[number]) for number in range(3)] == [2, 4, 1]


UNKNOWN: Dict[str, Tuple[Sequence[str], Optional[str]]] = {
    "none": (["w"] * 100, None),
    "4 %": ([*["w"] * 96, *["other"] * 4], None),
    "6 %": ([*["w"] * 94, *["other"] * 6], "6%"),
    "one long line": (["other w " * 10**6], "50%"),
    "every second line": (["other", "w"] * 10**4, "50%"),
    "lines beside empty ones": (["", "other"] * 10**4, "100%"),
    "nothing": ([""] * 10, None),
}


@pytest.mark.parametrize("kind", UNKNOWN)
def test_a_text_of_unknown_words(kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Told once for a dictionary; a text of which nothing is told has its words, and its ends of lines do not count."""
    text, told = UNKNOWN[kind]
    words = Dictionary()
    words.add_symbol("w")
    encoded = {line: words.encode_line(line, add_if_not_exist=False) for line in set(text)}
    builder = make_builder(f"{tmp_path / 'a'}.bin", impl="mmap", vocab_size=len(words))
    for line in text:
        builder.add_item(encoded[line])
    builder.finalize(f"{tmp_path / 'a'}.idx")
    for _ in range(2):
        assert len(load_indexed_dataset(str(tmp_path / "a"), words)) == len(text)
    found = [record.getMessage() for record in caplog.records if "<unk>" in record.getMessage()]
    assert len(found) == (told is not None)
    assert all(f"{told} of the words of {tmp_path / 'a'} are <unk>, as they" in message for message in found)
