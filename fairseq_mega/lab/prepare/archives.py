"""Archives and packed files: own copies or downloads, checked, and read without unpacking them; lines and tables."""

import gzip
import tarfile
import zipfile
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple, cast

from fairseq_mega.lab.prepare.download import DownloadError, Records, check_digests, fetch_missing, record_of
from fairseq_mega.lab.prepare.progress import print_line
from fairseq_mega.lab.runs.files import blocks_of

BYTE_ORDER_MARK = "\ufeff"
FETCH_AGAIN = "remove the file, and run the command again"
DAMAGE = (EOFError, gzip.BadGzipFile, zlib.error, tarfile.TarError, zipfile.BadZipFile)


class Archive(NamedTuple):
    """The address of an archive, its digests, and the remedy where it cannot be obtained."""

    url: str
    digests: Dict[str, str]  # hexadecimal, by the name in hashlib
    remedy: str = ""

    @property
    def name(self) -> str:
        """File name of the archive."""
        return name_of(self.url)


def name_of(url: str) -> str:
    """Return the name of the file at an address."""
    return url.rpartition("/")[2]


def obtain(archive: Archive, given: Optional[Path], folder: Path, checked: bool = True) -> Tuple[Path, Records]:
    """Return the path of an archive with published digests, and its entry in card.json.

    ``given`` is an own copy; None downloads to ``folder``, continuing an earlier attempt. Raises
    :class:`DownloadError` when it cannot be fetched, or, if ``checked``, naming the expected and the found checksum.
    """
    remedy = archive.remedy or f"Give your copy of {archive.name} with --archive FILE"
    path = given or folder / archive.name
    if given is None:
        fetch_missing(archive.url, path, remedy)
    print_line(f"{path.name}: {path.stat().st_size} bytes, comparing the checksum")
    again = FETCH_AGAIN if given is None else "get a new copy"
    digests = archive.digests if checked else {}
    check_digests(path, digests, None, f"The file is damaged or another one: {again}. {remedy}")
    return path, {path.name: record_of(path, **({} if given else {"url": archive.url}))}


@contextmanager
def naming_damage(path: Path, remedy: str = "get a new copy") -> Iterator[None]:
    """Raise :class:`DownloadError` that names a packed file and the remedy where reading it shows damage."""
    try:
        yield
    except DAMAGE as error:
        raise DownloadError(f"{path} cannot be unpacked: {error}; {remedy}") from error


def tar_files(path: Path) -> Iterator[Tuple[tarfile.TarInfo, IO[bytes]]]:
    """Yield the files of a tar packed with gzip in its order, each with a stream of its content, to be read before the
    next; at the end gzip's checksum is compared.

    Damage, which reading the streams can show, too, is named by :func:`naming_damage` around the caller's loop.
    """
    with gzip.open(path) as packed:
        with tarfile.open(fileobj=packed, mode="r|") as archive:
            for member in archive:
                stream = archive.extractfile(member) if member.isfile() else None
                if stream is not None:
                    yield member, stream
        for _ in blocks_of(cast(IO[bytes], packed)):
            pass


def read_tar(path: Path, selects: Callable[[str], bool]) -> Iterator[Tuple[str, bytes]]:
    """Yield name (without a leading ``./``) and content of selected files of a packed tar, in its order."""
    with naming_damage(path):
        for member, stream in tar_files(path):
            name = member.name.removeprefix("./")
            if selects(name):
                yield name, stream.read()


def read_lines(path: Path, keep_end: bool = False) -> Iterator[Tuple[int, bytes]]:
    """Yield number (from 1) and bytes of each line of a text file, plain or packed."""
    with naming_damage(path), gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as stream:
        for number, line in enumerate(stream, start=1):
            yield number, line if keep_end else line.rstrip(b"\r\n")


def decoded_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a text file with their ends, without a byte-order mark; name a line that is not UTF-8."""
    for number, line in read_lines(path, keep_end=True):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: line {number}: {error}") from error


def read_table(path: Path, columns: int) -> Iterator[Tuple[int, List[bytes]]]:
    """Yield line number (from 1) and fields of a file of tab-separated columns without any quoting.

    Raises ValueError that names a line with another number of columns.
    """
    for number, line in read_lines(path):
        fields = line.split(b"\t")
        if len(fields) != columns:
            raise ValueError(f"{path}: line {number} has {len(fields)} tab-separated columns, {columns} are needed")
        yield number, fields
