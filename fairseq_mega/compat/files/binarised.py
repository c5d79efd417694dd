"""Compare the two files of binarised data when they are opened, and report texts of unknown words."""

import logging
import os
import typing

import numpy as np

from fairseq_mega.compat.patching import wrap

logger = logging.getLogger("fairseq_mega.compat.files.binarised")
MANY_UNKNOWN = 0.05  # share of <unk> among the words of a text, above which it is reported
PARTS, LENGTH = 1000, 1000  # maximum parts by which the share is estimated, and their tokens


def compare_binarised_files() -> None:
    """Refuse a .bin file whose size is not that of its .idx file, which fairseq reads at wrong places."""
    from fairseq.data.indexed_dataset import MMapIndexedDataset

    wrap(MMapIndexedDataset, "_do_init", _open)


def _open(original: typing.Callable, self: typing.Any, path: str) -> None:
    original(self, path)
    sizes, pointers = self._index.sizes, self._index._pointers
    listed = int(pointers[-1]) + int(sizes[-1]) * self._index.dtype().itemsize if len(sizes) else 0
    found = os.path.getsize(f"{path}.bin")
    if found != listed:
        raise ValueError(
            f"{path}.bin has {found:,} bytes, and its index {path}.idx lists {listed:,}: one of them is cut off or of "
            "other data; make the data again, or copy both files again"
        )


def warn_unknown_words() -> None:
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
    from fairseq.data.indexed_dataset import MMapIndexedDataset

    if not isinstance(lines, MMapIndexedDataset):
        return 0.0
    tokens = np.frombuffer(lines._bin_buffer, dtype=lines._index.dtype)
    if len(tokens) > PARTS * LENGTH:
        begins = np.random.RandomState(0).randint(len(tokens) - LENGTH, size=PARTS)
        tokens = np.concatenate([tokens[begin : begin + LENGTH] for begin in begins])
    ends, unknown = (int((tokens == number).sum()) for number in (dictionary.eos(), dictionary.unk()))
    return unknown / max(1, len(tokens) - ends)
