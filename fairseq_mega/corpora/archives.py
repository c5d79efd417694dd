"""Archives and packed files that data sets come in: taken or downloaded, checked, and read without unpacking them."""

import gzip
import tarfile
import zlib
from pathlib import Path
from typing import IO, Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from fairseq_mega.corpora.download import DownloadError, check_digests, fetch_missing, record_of, say
from fairseq_mega.corpora.language_modeling.words import BYTE_ORDER_MARK
from fairseq_mega.corpora.unpacking import check_expansion, open_gzip

_DAMAGE = (EOFError, gzip.BadGzipFile, zlib.error, tarfile.TarError)


class Archive(NamedTuple):
    """Where an archive comes from and what its content must be."""

    url: str
    digests: Dict[str, str]  # hexadecimal, by the name that hashlib knows

    @property
    def name(self) -> str:
        """File name of the archive."""
        return self.url.rpartition("/")[2]


def obtain(archive: Archive, given: Optional[Path], folder: Path) -> Tuple[Path, Dict[str, Dict[str, Any]]]:
    """Return the path of an archive, and what SOURCE.json says of it.

    ``given`` is an own copy; None downloads to ``folder``, going on where an earlier attempt stopped. Raises
    :class:`DownloadError` when it cannot be fetched, or naming the expected and the found checksum.
    """
    own = f"An own copy of {archive.name} can be given with --archive FILE"
    path = given
    if path is None:
        path = folder / archive.name
        fetch_missing(archive.url, path, own)
    elif not path.is_file():
        raise DownloadError(f"--archive {path} does not exist; leave the option out to download {archive.url}")
    say(f"{path.name}: {path.stat().st_size} bytes, comparing the checksum")
    remedy = "The file is damaged or another one: remove it and fetch it again"
    check_digests(path, archive.digests, None, f"{remedy}. {own}")
    return path, {path.name: record_of(path, **({} if given else {"url": archive.url}))}


def read_tar(path: Path, wanted: Callable[[str], bool]) -> Iterator[Tuple[str, bytes]]:
    """Yield name (without a leading ``./``) and content of the files of a packed tar, in its order.

    Raises :class:`DownloadError` naming the archive when it is damaged, OSError when it unpacks to too much.
    """
    unpacked = 0
    try:
        with tarfile.open(path, "r|*") as archive:
            for member in archive:
                unpacked += member.size
                check_expansion(path, unpacked)  # before any of it is read
                name = member.name[2:] if member.name.startswith("./") else member.name
                if member.isfile() and wanted(name):
                    stream = archive.extractfile(member)
                    assert stream is not None
                    yield name, stream.read()
    except _DAMAGE as error:
        raise DownloadError(f"{path} cannot be unpacked: {error}; get a new copy") from error


def open_packed(path: Path) -> IO[bytes]:
    """Open a file that may be packed with gzip, which its first bytes tell."""
    with open(path, "rb") as stream:
        packed = stream.read(2) == b"\x1f\x8b"
    return open_gzip(path) if packed else open(path, "rb")


def read_packed(path: Path) -> bytes:
    """Return the content of a file, unpacked; raises :class:`DownloadError` when it is damaged."""
    try:
        with open_packed(path) as stream:
            return stream.read()
    except _DAMAGE as error:
        raise DownloadError(f"{path} is damaged: {error}; get a new copy") from error


def read_table(path: Path, columns: int) -> Iterator[Tuple[int, List[bytes]]]:
    """Yield line number (from 1) and fields of a file of tab-separated columns, plain or gzip, without any quoting.

    A byte-order mark is left out. Raises ValueError naming the line that has another number of columns, and
    :class:`DownloadError` for damage.
    """
    try:
        with open_packed(path) as stream:
            for number, line in enumerate(stream, start=1):
                if number == 1 and line.startswith(BYTE_ORDER_MARK):
                    line = line[len(BYTE_ORDER_MARK) :]
                fields = line.rstrip(b"\r\n").split(b"\t")
                if len(fields) != columns:
                    raise ValueError(
                        f"{path}: line {number} has {len(fields)} tab-separated columns, {columns} are needed"
                    )
                yield number, fields
    except _DAMAGE as error:
        raise DownloadError(f"{path} is damaged: {error}; get a new copy") from error


def need_files(option: str, paths: Dict[str, Path]) -> None:
    """Raise ValueError naming the option and the first file that is not there."""
    for path in paths.values():
        if not path.is_file():
            raise ValueError(f"{option}: {path} does not exist")


def records_of(paths: Dict[str, Path]) -> Dict[str, Dict[str, Any]]:
    """Return what SOURCE.json says of files."""
    return {path.name: record_of(path) for path in paths.values()}
