"""Compare the two files of binarised data when they are opened: fairseq reads past an end, or at wrong places.

Errors in a dictionary name its file, and texts of unknown words are reported.
"""

import logging
import os
import re
import struct
import typing

import numpy as np

from fairseq_mega.compat.patching import wrap

logger = logging.getLogger("fairseq_mega.compat.files.binarised")
MANY_UNKNOWN = 0.05  # share of <unk> among the words of a text, above which it is reported
PARTS, LENGTH = 1000, 1000  # maximum parts by which the share is estimated, and their tokens
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


def tell_unknown_words() -> None:
    """Warn of binarised text with many words that are ``<unk>``, once for each file of a task."""
    from fairseq.data import indexed_dataset

    wrap(indexed_dataset, "make_dataset", _make_and_look)


def _make_and_look(
    original: typing.Callable, path: str, impl: str, fix_lua_indexing: bool = False, dictionary: typing.Any = None
) -> typing.Any:
    lines = original(path, impl, fix_lua_indexing, dictionary)
    reported = set() if dictionary is None else vars(dictionary).setdefault("texts_of_unknown_words", set())
    share = 0.0 if dictionary is None or path in reported else _share_of_unknown(lines, dictionary)
    if share > MANY_UNKNOWN:
        reported.add(path)
        logger.warning(
            f"{share:.0%} of the words of {path} are <unk>, as they are not in its dictionary: losses and scores are "
            "of <unk> in place of these words. Split and write the text like that of the dictionary, or make subwords "
            "or bytes, which keep all words (fairseq-mega-prepare)"
        )
    return lines


def _share_of_unknown(lines: typing.Any, dictionary: typing.Any) -> float:
    """Return the share of ``<unk>`` among the words of a text; of a long one, among those of parts from all over it."""
    from fairseq.data.indexed_dataset import IndexedDataset, MMapIndexedDataset

    shift = 0
    if isinstance(lines, MMapIndexedDataset):
        tokens = np.frombuffer(lines._bin_buffer, dtype=lines._index.dtype)
    elif isinstance(lines, IndexedDataset):  # of --dataset-impl lazy and cached, which count from 1
        tokens = np.memmap(f"{lines.path}.bin", lines.dtype, "r")
        shift = int(lines.fix_lua_indexing)
    else:
        return 0.0
    if len(tokens) > PARTS * LENGTH:
        begins = np.random.RandomState(0).randint(len(tokens) - LENGTH, size=PARTS)
        tokens = np.concatenate([tokens[begin : begin + LENGTH] for begin in begins])
    ends, unknown = (int((tokens == number + shift).sum()) for number in (dictionary.eos(), dictionary.unk()))
    return unknown / max(1, len(tokens) - ends)
