"""Text files of others in UTF-8, plain or packed with gzip: lines and tables."""

import io
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Iterator, List, Optional, Tuple

from fairseq_mega.lab.prepare.archives import open_packed
from fairseq_mega.lab.prepare.unpacking import naming_damage


@contextmanager
def open_text(path: Path, errors: str = "strict", newline: Optional[str] = None) -> Iterator[IO[str]]:
    """Open a file in UTF-8 for reading as text, unpacked from gzip and without its byte-order mark.

    Args:
        errors, newline: as for Python's open.

    Raises:
        ValueError: that names the file and the remedy, if it is not UTF-8; also while it is read.
        DownloadError: for damage of a packed one.
    """
    try:
        with naming_damage(path), io.TextIOWrapper(open_packed(path), "utf-8-sig", errors, newline) as text:
            yield text
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 ({error.reason}): {not_utf8(path)}") from error


def decoded_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a text file in UTF-8, plain or gzip, with their ends; a byte-order mark is left out.

    Raises:
        ValueError: names the line that is not UTF-8.
        DownloadError: for a damaged packed file.
    """
    with naming_damage(path), open_packed(path) as stream:
        for number, line in enumerate(stream, start=1):
            try:
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                fault = f"line {number} is not UTF-8 ({error.reason}, byte 0x{line[error.start]:02x})"
                raise ValueError(f"{path}: {fault}: {not_utf8(path)}") from error


def not_utf8(path: object) -> str:
    """Return the remedy for a text that is not UTF-8."""
    return (
        f"convert the file, for example with `iconv -f CP1252 -t UTF-8 {path}` where it is western European, and "
        f"otherwise from the encoding that it was written in"
    )


def read_table(path: Path, columns: int) -> Iterator[Tuple[int, List[bytes]]]:
    """Yield line number (from 1) and fields of a file of tab-separated columns, plain or gzip, without any quoting.

    A byte-order mark is left out; bytes that are no UTF-8 stay as they are. Raises ValueError naming the line that has
    another number of columns, or a file that is no text, and :class:`DownloadError` for damage.
    """
    for number, line in read_lines(path):
        fields = line.split(b"\t")
        if len(fields) != columns:
            raise ValueError(f"{path}: line {number} has {len(fields)} tab-separated columns, {columns} are needed")
        yield number, fields


def read_lines(path: Path) -> Iterator[Tuple[int, bytes]]:
    """Yield number (from 1) and bytes of each line of a text file; raises as :func:`read_table`.

    The end of a line is left out, and so is a byte-order mark, which joined files have within them.
    """
    with open_text(path, errors="surrogateescape", newline="\n") as file:
        for number, line in enumerate(file, start=1):
            yield number, line.rstrip("\r\n").lstrip("\ufeff").encode("utf-8", "surrogateescape")
