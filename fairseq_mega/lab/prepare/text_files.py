"""Text files of others in UTF-8, plain or packed with gzip (.gz): lines and tables."""

import io
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Iterator, List, Optional, Tuple

from fairseq_mega.lab.prepare.archives import naming_damage, open_packed

BYTE_ORDER_MARK = "\ufeff"


@contextmanager
def open_text(path: Path, errors: str = "strict", newline: Optional[str] = None) -> Iterator[IO[str]]:
    """Open a file in UTF-8 for reading as text, unpacked and without its byte-order mark.

    Args:
        errors, newline: as for Python's open.

    Raises:
        ValueError: that names the file, if it is not UTF-8; also while it is read.
        DownloadError: for damage of a packed one.
    """
    try:
        with naming_damage(path), io.TextIOWrapper(open_packed(path), "utf-8-sig", errors, newline) as text:
            yield text
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: {error}") from error


def decoded_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a text file with their ends, without a byte-order mark at the beginning.

    Raises:
        ValueError: names the line that is not UTF-8.
        DownloadError: for a damaged packed file.
    """
    for number, line in read_lines(path, keep_end=True):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: line {number}: {error}") from error


def read_lines(path: Path, keep_end: bool = False) -> Iterator[Tuple[int, bytes]]:
    """Yield number (from 1) and bytes of each line of a text file; raise :class:`DownloadError` for damage."""
    with naming_damage(path), open_packed(path) as stream:
        for number, line in enumerate(stream, start=1):
            yield number, line if keep_end else line.rstrip(b"\r\n")


def read_table(path: Path, columns: int) -> Iterator[Tuple[int, List[bytes]]]:
    """Yield line number (from 1) and fields of a file of tab-separated columns without any quoting.

    Raises:
        ValueError: names the line that has another number of columns.
        DownloadError: for a damaged packed file.
    """
    for number, line in read_lines(path):
        fields = line.split(b"\t")
        if len(fields) != columns:
            raise ValueError(f"{path}: line {number} has {len(fields)} tab-separated columns, {columns} are needed")
        yield number, fields
