"""Compare the two files of binarised data when they are opened: fairseq reads past an end, or at wrong places.

Errors in a dictionary name its file.
"""

import os
import re
import struct
import typing

from fairseq_mega.compat.patching import wrap

UNREADABLE = (AssertionError, KeyError, ValueError, struct.error)  # of fairseq's reader of an index


def compare_binarised_files() -> None:
    """Refuse a .bin file whose size is not that of its .idx file, and an .idx file that cannot be read."""
    from fairseq.data.indexed_dataset import MMapIndexedDataset

    wrap(MMapIndexedDataset.Index, "__init__", _read_index)
    wrap(MMapIndexedDataset, "_do_init", _open)
    for kind in (MMapIndexedDataset, MMapIndexedDataset.Index):
        wrap(kind, "__del__", _close)


def _read_index(original: typing.Callable, self: typing.Any, path: str) -> None:
    try:
        original(self, path)
    except UNREADABLE as error:
        raise ValueError(
            f"{path} is cut off or not an index of binarised data: make the data again, or copy the file again"
        ) from error


def _open(original: typing.Callable, self: typing.Any, path: str) -> None:
    from fairseq.data.indexed_dataset import data_file_path, index_file_path

    if not os.path.getsize(data_file_path(path)):
        raise ValueError(
            f"{data_file_path(path)} is empty: its split has no examples; make the data again, of more text"
        )
    original(self, path)
    sizes, pointers = self._index.sizes, self._index._pointers
    wanted = int(pointers[-1]) + int(sizes[-1]) * self._index.dtype().itemsize if len(sizes) else 0
    found = os.path.getsize(data_file_path(path))
    if found != wanted:
        raise ValueError(
            f"{data_file_path(path)} has {found:,} bytes, and its index {index_file_path(path)} lists {wanted:,}: one "
            "of them is cut off or of other data; make the data again, or copy both files again"
        )


def _close(original: typing.Callable, self: typing.Any) -> None:
    """Close what was opened; an error while opening leaves nothing."""
    if "_bin_buffer_mmap" in vars(self):
        original(self)


def name_bad_dictionaries() -> None:
    """Report the file, and the line of a symbol that a dictionary lists twice."""
    from fairseq.data import Dictionary

    wrap(Dictionary, "add_from_file", _read_dictionary)


def _read_dictionary(original: typing.Callable, self: typing.Any, f: typing.Any) -> None:
    try:
        original(self, f)
    except (RuntimeError, ValueError) as error:
        if not isinstance(f, str):
            raise
        twice = re.match("Duplicate word found when loading Dictionary: '(.*?)'\\. Dup", str(error), re.DOTALL)
        if twice is None:
            raise ValueError(f"{f}: {error}") from error
        with open(f, encoding="utf-8") as file:
            lines = [number for number, line in enumerate(file, 1) if line.rstrip().rsplit(" ", 1)[0] == twice[1]]
        raise ValueError(
            f"{f}, line {lines[min(1, len(lines) - 1)]}: the symbol {twice[1]!r} is in the dictionary already, and "
            f"each line adds a number: give the dictionary that the data was made with, or make the data again"
        ) from error
