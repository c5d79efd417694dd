"""Archives and packed files: own copies or downloads, checked, and read without unpacking them to disk."""

import gzip
import tarfile
import zipfile
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Callable, Dict, Iterator, NamedTuple, Optional, Tuple, cast

from fairseq_mega.data.card import read_json
from fairseq_mega.lab.prepare.checksums import Records, check_digests, record_of
from fairseq_mega.lab.prepare.download import DownloadError, fetch_missing
from fairseq_mega.lab.prepare.progress import print_line
from fairseq_mega.lab.runs.files import BLOCK, write_json

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


def obtain(archive: Archive, given: Optional[Path], folder: Path) -> Tuple[Path, Records]:
    """Return the path of an archive with published digests, and its entry in card.json.

    ``given`` is an own copy; None downloads to ``folder``, continuing an earlier attempt. Raises
    :class:`DownloadError` when it cannot be fetched, or naming the expected and the found checksum.
    """
    remedy = archive.remedy or f"Give your copy of {archive.name} with --archive FILE"
    path = given or folder / archive.name
    if given is None:
        fetch_missing(archive.url, path, remedy)
    print_line(f"{path.name}: {path.stat().st_size} bytes, comparing the checksum")
    again = FETCH_AGAIN if given is None else "get a new copy"
    check_digests(path, archive.digests, None, f"The file is damaged or another one: {again}. {remedy}")
    return path, {path.name: record_of(path, **({} if given else {"url": archive.url}))}


def check_gzip(path: Path) -> None:
    """Read a gzip file to its end; raise :class:`DownloadError` if it is cut off or damaged."""
    with naming_damage(path, FETCH_AGAIN), gzip.open(path) as stream:
        while stream.read(BLOCK):
            pass


def obtain_recorded(
    url: str,
    folder: Path,
    record_file: Path,
    allow_download: bool = True,
    check: Callable[[Path], None] = check_gzip,
) -> Path:
    """Return the path of an archive in ``folder`` whose checksum is not published, downloaded if absent.

    The first time, the archive is read to its end by ``check`` (default: as gzip), and size and SHA-256 are written to
    ``record_file``; afterwards it must still match them. Raises :class:`DownloadError` otherwise.
    """
    name = name_of(url)
    path, records = folder / name, read_json(record_file)
    fetch_missing(url, path, attempts=8, allowed=allow_download)
    known = records.get(name)
    if known is None:
        print_line(f"{name}: {path.stat().st_size} bytes, checking")
        check(path)
        known = records[name] = record_of(path, url=url)
        write_json(record_file, records)
    else:
        remedy = f"Remove it and fetch it again, or remove its entry from {record_file} if the new file is intended"
        check_digests(path, {"sha256": known["sha256"]}, known["bytes"], remedy)
    print_line(f"{name}: {known['bytes']} bytes, SHA-256 {known['sha256']}")
    return path


@contextmanager
def naming_damage(path: Path, remedy: str = "get a new copy") -> Iterator[None]:
    """Raise :class:`DownloadError` that names a packed file and the remedy where reading it shows damage."""
    try:
        yield
    except DAMAGE as error:
        raise DownloadError(f"{path} cannot be unpacked: {error}; {remedy}") from error


def tar_files(path: Path) -> Iterator[Tuple[tarfile.TarInfo, IO[bytes]]]:
    """Yield the files of a packed tar in its order, each with a stream of its content, to be read before the next.

    Damage, which reading the streams can show, too, is named by :func:`naming_damage` around the caller's loop.
    """
    with tarfile.open(path, "r|*") as archive:
        for member in archive:
            stream = archive.extractfile(member) if member.isfile() else None
            if stream is not None:
                yield member, stream


def read_tar(path: Path, selects: Callable[[str], bool]) -> Iterator[Tuple[str, bytes]]:
    """Yield name (without a leading ``./``) and content of the files of a packed tar, in its order.

    Raises :class:`DownloadError` naming the archive when it is damaged.
    """
    with naming_damage(path):
        for member, stream in tar_files(path):
            name = member.name.removeprefix("./")
            if selects(name):
                yield name, stream.read()


def open_packed(path: Path) -> IO[bytes]:
    """Open a file that may be packed with gzip, as the ending .gz or .dz of its name shows."""
    return cast(IO[bytes], gzip.open(path) if path.suffix.lower() in (".gz", ".dz") else open(path, "rb"))
