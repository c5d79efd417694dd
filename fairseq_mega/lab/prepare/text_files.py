"""Text files of others, lines and tables: packed ones and marked UTF-16 and UTF-32 too; other files are named."""

import io
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Iterable, Iterator, List, Optional, Tuple

from fairseq_mega.data.file_kinds import HEAD, kind_of
from fairseq_mega.lab.prepare.archives import open_packed
from fairseq_mega.lab.prepare.unpacking import naming_damage

BY_CHANCE = 0.1  # share of lines in another encoding that are UTF-8, too


@contextmanager
def open_text(path: Path, errors: str = "strict", newline: Optional[str] = None) -> Iterator[IO[str]]:
    """Open a file for reading as text, unpacked from gzip and without its byte-order mark.

    Args:
        errors, newline: as for Python's open.

    Raises:
        ValueError: that names the file, its kind and the remedy, if it is no text, or not in the encoding that it seems
            to have; also while it is read.
        DownloadError: for damage of a packed one.
    """
    try:
        with naming_damage(path), open_packed(path) as stream:
            assert isinstance(stream, io.BufferedReader)
            kind = kind_of(stream.peek(HEAD)[:HEAD])
            if kind is not None and not kind.marked:
                raise ValueError(kind.told(path))
            encoding = "utf-8-sig" if kind is None else kind.encoding[:-2]  # the mark sets the order
            with io.TextIOWrapper(stream, encoding, errors, newline) as text:
                yield text
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not {error.encoding.upper()} ({error.reason}): {not_utf8(path)}") from error


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


def is_utf8(line: bytes) -> bool:
    """Return whether bytes are text in UTF-8."""
    return line.decode("utf-8", "ignore").encode() == line


def is_partly_utf8(lines: Iterable[bytes]) -> bool:
    """Return whether more lines with other characters than ASCII are UTF-8 than by chance."""
    others = [line for line in lines if not line.isascii()]
    return sum(map(is_utf8, others)) >= max(1, BY_CHANCE * len(others))


def not_utf8(path: object, mixed: bool = False) -> str:
    """Return the remedy for a plain text that is no UTF-8; ``mixed`` where a part is UTF-8."""
    if mixed:
        return (
            f"other lines are UTF-8, which a conversion of the whole file would damage: correct the others "
            f"(`LC_ALL=C.UTF-8 grep -naxv '.*' {path}` lists them)"
        )
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
