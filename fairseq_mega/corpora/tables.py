"""Tables that corpora come in: tab-separated columns, plain or packed."""

from codecs import BOM_UTF8
from pathlib import Path
from typing import Dict, Iterator, List, Tuple

from fairseq_mega.corpora.archives import DAMAGE, open_packed
from fairseq_mega.corpora.download import DownloadError


def need_files(option: str, paths: Dict[str, Path]) -> None:
    """Raise ValueError naming the option and the first file that is not there."""
    for path in paths.values():
        if path.is_dir():
            raise ValueError(f"{option}: {path} is a folder: name the file in it")
        if not path.is_file():
            raise ValueError(f"{option}: {path} does not exist")


def read_table(path: Path, columns: int) -> Iterator[Tuple[int, List[bytes]]]:
    """Yield line number (from 1) and fields of a file of tab-separated columns, plain or gzip, without any quoting.

    A byte-order mark is left out. Raises ValueError naming the line that has another number of columns, and
    :class:`DownloadError` for damage.
    """
    try:
        with open_packed(path) as stream:
            for number, line in enumerate(stream, start=1):
                if number == 1 and line.startswith(BOM_UTF8):
                    line = line[len(BOM_UTF8) :]
                fields = line.rstrip(b"\r\n").split(b"\t")
                if len(fields) != columns:
                    raise ValueError(
                        f"{path}: line {number} has {len(fields)} tab-separated columns, {columns} are needed"
                    )
                yield number, fields
    except DAMAGE as error:
        raise DownloadError(f"{path} is damaged: {error}; get a new copy") from error
