"""Binarised data whose two files do not belong together, or are cut off: an error names the file at once."""

import pickle
import re
from pathlib import Path
from typing import Callable, Dict

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
