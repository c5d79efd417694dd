"""Tables that corpora come in: tab-separated columns, plain or packed."""

from pathlib import Path
from typing import Dict, Iterator, List, Tuple

from fairseq_mega.lab.prepare.text_files import open_text


def need_files(option: str, paths: Dict[str, Path]) -> None:
    """Raise ValueError naming the option and the first file that is not there."""
    for path in paths.values():
        if path.is_dir():
            raise ValueError(f"{option}: {path} is a folder: name the file in it")
        if not path.is_file():
            raise ValueError(f"{option}: {path} does not exist")


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

    Its end is left out, and so is a byte-order mark, which stands within files that were joined.
    """
    with open_text(path, errors="surrogateescape", newline="\n") as file:
        for number, line in enumerate(file, start=1):
            yield number, line.rstrip("\r\n").lstrip("\ufeff").encode("utf-8", "surrogateescape")
