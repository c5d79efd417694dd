"""Compare the two files of binarised data when they are opened."""

import os
import typing

from fairseq_mega.compat.patching import around


@around("fairseq.data.indexed_dataset", "MMapIndexedDataset._do_init")
def compare_binarised_files(original: typing.Callable, self: typing.Any, path: str) -> None:
    """Refuse a .bin file whose size is not that of its .idx file, which fairseq reads at wrong places."""
    original(self, path)
    sizes, pointers = self._index.sizes, self._index._pointers
    listed = int(pointers[-1]) + int(sizes[-1]) * self._index.dtype().itemsize if len(sizes) else 0
    found = os.path.getsize(f"{path}.bin")
    if found != listed:
        raise ValueError(
            f"{path}.bin has {found:,} bytes, and its index {path}.idx lists {listed:,}: one of them is cut off or of "
            "other data; make the data again, or copy both files again"
        )
