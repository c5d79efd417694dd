"""Files of pixels, mapped into memory: arrays of numpy, and texts of integers 0..255, which are cached as bytes."""

import hashlib
import logging
import os
import warnings
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

import numpy as np

logger = logging.getLogger(__name__)
BLOCK_BYTES = 1 << 23


class MappedArray:
    """Array in a file; the file is mapped into memory in each process that uses it.

    Args:
        map_file: maps the file; can be pickled.
    """

    def __init__(self, map_file: Callable[[], Any]) -> None:
        self._map_file = map_file
        self._array: Any = map_file()
        self.shape = self._array.shape

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, index: Any) -> np.ndarray:
        """Return a copy of one entry or several of the first dimension."""
        if self._array is None:
            self._array = self._map_file()
        return np.array(self._array[index])

    def __getstate__(self) -> Dict[str, Any]:
        return {**self.__dict__, "_array": None}  # a mapped file would be pickled as its contents


def map_images(path: Path) -> MappedArray:
    """Map images (n, H, W, 3) of uint8 in a .npy file.

    Raises:
        OSError, ValueError: if the file cannot be read, or holds other data.
    """
    images = MappedArray(partial(np.load, path, mmap_mode="r"))
    if images[:0].dtype != np.uint8 or images.shape[3:] != (3,):
        raise ValueError(f"{path} holds {images[:0].dtype} {images.shape}: uint8 (n, height, width, 3) is required")
    return images


def map_pixels(source: Path, cache_folder: Optional[Path] = None) -> MappedArray:
    """Map the images of a text as rows (n, pixels) of uint8.

    The pixels are cached in a file, whose name depends on size and time of the text: it is made again after the text
    has changed. Several processes may make it at once.

    Args:
        source: text with one image per line, pixels as integers separated by blanks, all lines of equal length.
        cache_folder: folder of the cache; None: the folder of the text.

    Raises:
        OSError: if the text cannot be read, or the cache cannot be written.
        ValueError: if a line is broken, or the text is empty.
    """
    state = source.stat()
    key = [state.st_size, state.st_mtime_ns, cache_folder and source.resolve()]
    digest = hashlib.sha256(repr(key).encode()).hexdigest()[:12]
    cache = (cache_folder or source.parent) / f"{source.name}-{digest}.uint8"
    columns = columns_of(source)
    if not columns:
        raise ValueError(f"{source}: its first line is empty")
    if not cache.is_file():
        write_cache(source, cache, columns)
    shape = (cache.stat().st_size // columns, columns)
    return MappedArray(partial(np.memmap, cache, np.uint8, "r", shape=shape))


def columns_of(source: Path) -> int:
    """Return the number of words in the first line of a text, without checking them."""
    with open(source, "rb") as file:
        return len(file.readline().split())


def write_cache(source: Path, cache: Path, columns: int) -> None:
    """Write the pixels of a text as bytes; see :func:`map_pixels`."""
    logger.info(f"{source}: reading the pixels once, into {cache}")
    temporary = cache.with_name(f"{cache.name}.{os.getpid()}.tmp")
    cache.parent.mkdir(parents=True, exist_ok=True)
    begin = 1
    try:
        with open(source, "rb") as text, open(temporary, "wb") as file:
            while lines := text.readlines(BLOCK_BYTES):
                try:
                    file.write(parsed(lines, columns))
                except (ValueError, Warning) as error:
                    raise ValueError(f"{source}, in the lines from {begin} on: {error}") from error
                begin += len(lines)
        os.replace(temporary, cache)
    finally:
        temporary.unlink(missing_ok=True)


def parsed(lines: List[bytes], columns: int) -> bytes:
    """Return the pixels of lines as bytes."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # older numpy reads 256 as a float, with a warning
        pixels = np.loadtxt(lines, dtype=np.uint8, comments=None, ndmin=2)
    if pixels.shape != (len(lines), columns):
        raise ValueError(f"found {pixels.shape[1]} numbers a line instead of {columns}, or empty lines")
    return pixels.tobytes()
