"""Images as lines of integers 0..255, read once and cached as bytes in a file that is mapped into memory."""

import contextlib
import hashlib
import json
import logging
import os
import re
import time
import warnings
from pathlib import Path
from typing import Any, Dict, Iterator, Optional, Tuple

import numpy as np

logger = logging.getLogger(__name__)

HEADER_BYTES = 512
BLOCK_BYTES = 1 << 23


class PixelFile:
    """Images of a text file as rows of uint8, mapped from a cache file.

    The cache records size and time of the text, and is written again after the text has changed. Several processes may
    write the cache at once: each writes a separate file, and the last file is kept.

    Args:
        source: text with one image per line, pixels as integers separated by blanks, all lines of equal length.
        cache_folder: folder of the cache; None: the folder of the text.

    Raises:
        FileNotFoundError: if the text does not exist.
        ValueError: if a line is broken, or the cache cannot be written.
    """

    def __init__(self, source: Path, cache_folder: Optional[Path] = None) -> None:
        if not source.is_file():
            raise FileNotFoundError(f"{source} does not exist: give the folder that holds input/ and label/")
        self.source = source
        self.cache = cache_path(source, cache_folder)
        header = read_header(self.cache)
        if header is None or not fits(header, source, self.cache):
            header = build_cache(source, self.cache)
        self.shape: Tuple[int, int] = (header["rows"], header["columns"])
        self._rows: Optional[np.ndarray] = None

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> np.ndarray:
        """Return rows as uint8: one row (columns,), or several (n, columns)."""
        if self._rows is None:
            self._rows = np.memmap(self.cache, dtype=np.uint8, mode="r", offset=HEADER_BYTES, shape=self.shape)
        return np.asarray(self._rows[index])

    def __getstate__(self) -> Dict[str, Any]:
        return {**self.__dict__, "_rows": None}  # a mapped file would be pickled as its contents


def columns_of(source: Path) -> int:
    """Return the number of words in the first line of a text, without checking them."""
    with open(source, "rb") as file:
        return len(file.readline().split())


def cache_path(source: Path, folder: Optional[Path]) -> Path:
    """Return the path of a text's cache: beside the text, or in ``folder`` with a digest of the text's path."""
    if folder is None:
        return source.with_name(f"{source.name}.uint8")
    digest = hashlib.sha256(str(source.resolve()).encode()).hexdigest()[:12]
    return folder / f"{source.name}-{digest}.uint8"


def read_header(cache: Path) -> Optional[Dict[str, int]]:
    """Return the header of a cache file, or None if it cannot be read."""
    try:
        with open(cache, "rb") as file:
            header = json.loads(file.read(HEADER_BYTES))
    except (OSError, ValueError):
        return None
    return header if isinstance(header, dict) and {"rows", "columns", "size", "time"} <= set(header) else None


def fits(header: Dict[str, int], source: Path, cache: Path) -> bool:
    """Return whether a cache is complete and belongs to the current text."""
    whole = cache.stat().st_size == HEADER_BYTES + header["rows"] * header["columns"]
    return whole and state_of(source) == {key: header[key] for key in ("size", "time")}


def state_of(source: Path) -> Dict[str, int]:
    """Return size and time of a file, which reveal a change."""
    found = source.stat()
    return {"size": found.st_size, "time": found.st_mtime_ns}


def build_cache(source: Path, cache: Path) -> Dict[str, int]:
    """Read the text, write the cache, and return its header.

    Raises:
        ValueError: if a line is broken, or the cache cannot be written.
    """
    state = state_of(source)  # before it is read: a change meanwhile makes the next start read it again
    temporary = cache.with_name(f"{cache.name}.{os.getpid()}.tmp")
    rows = columns = 0
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(b" " * HEADER_BYTES)
    except OSError as error:
        raise ValueError(
            f"{temporary} cannot be written ({error.strerror}): give --pixel-cache a folder for the pixels of {source}"
        ) from error
    try:
        with open(temporary, "r+b") as file:
            file.seek(HEADER_BYTES)
            for pixels in parsed_blocks(source):
                if columns and pixels.shape[1] != columns:
                    raise ValueError(
                        f"{source}, line {rows + 1}: {pixels.shape[1]} pixels, the lines before have {columns}: all "
                        f"images must have one size"
                    )
                rows, columns = rows + pixels.shape[0], pixels.shape[1]
                file.write(pixels.tobytes())
            if rows == 0:
                raise ValueError(f"{source} is empty: give one image per line")
            header = {"rows": rows, "columns": columns, **state}
            file.seek(0)
            file.write(json.dumps(header).encode().ljust(HEADER_BYTES))
        os.replace(temporary, cache)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    logger.info(f"{source}: {rows:,} images of {columns:,} pixels cached in {cache}")
    return header


def parsed_blocks(source: Path) -> Iterator[np.ndarray]:
    """Yield the pixels (lines, columns) uint8 of a text, block by block; progress is logged every 10 seconds.

    Raises:
        ValueError: if a line has another number of pixels, or a word that is not an integer 0..255.
    """
    begin, logged, size = 1, time.monotonic(), source.stat().st_size
    with open(source, "rb") as file:
        while lines := file.readlines(BLOCK_BYTES):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("error")  # older numpy reads 256 as a float, with a warning
                    pixels = np.loadtxt(lines, dtype=np.uint8, comments=None, ndmin=2)
            except (ValueError, Warning) as error:
                raise ValueError(
                    f"{source}: a line from {begin} on is not an image of integers from 0 to 255, or of another size "
                    f"(rows counted from there: {error})"
                ) from error
            yield pixels
            begin += len(lines)
            if time.monotonic() - logged > 10:
                logged = time.monotonic()
                logger.info(f"{source}: {file.tell() >> 20:,} of {size >> 20:,} MiB read")


def read_labels(path: Path) -> np.ndarray:
    """Read labels (n,) int64 from a file with one integer per line.

    Raises:
        FileNotFoundError: if the file does not exist.
        ValueError: if a line is not an integer.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist: give the folder that holds input/ and label/")
    labels = []
    with open(path, encoding="utf-8-sig", errors="replace") as file:
        for number, line in enumerate(file, 1):
            if not re.fullmatch(r"\d{1,9}", line.strip()):
                raise ValueError(
                    f"{path} line {number}: {line.strip()[:20]!r} is not a class: give one integer of at least 0 per "
                    f"line, as text in ASCII or UTF-8"
                )
            labels.append(int(line))
    return np.array(labels, dtype=np.int64)
