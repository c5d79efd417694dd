"""Archives and packed files: taken or downloaded, checked, and read without unpacking them to disk."""

import gzip
import tarfile
import zlib
from pathlib import Path
from typing import IO, Callable, Dict, Iterator, NamedTuple, Optional, Tuple

from fairseq_mega.lab.prepare.checksums import Records, check_digests, record_of
from fairseq_mega.lab.prepare.download import DownloadError, fetch_missing
from fairseq_mega.lab.prepare.progress import say
from fairseq_mega.lab.prepare.unpacking import check_expansion, open_gzip

DAMAGE = (EOFError, gzip.BadGzipFile, zlib.error, tarfile.TarError)


class Archive(NamedTuple):
    """The address of an archive, its digests, and the remedy where it cannot be had."""

    url: str
    digests: Dict[str, str]  # hexadecimal, by the name that hashlib knows
    remedy: str = ""

    @property
    def name(self) -> str:
        """File name of the archive."""
        return self.url.rpartition("/")[2]


def obtain(archive: Archive, given: Optional[Path], folder: Path) -> Tuple[Path, Records]:
    """Return the path of an archive, and its entry in SOURCE.json.

    ``given`` is an own copy; None downloads to ``folder``, continuing an earlier attempt. Raises
    :class:`DownloadError` when it cannot be fetched, or naming the expected and the found checksum.
    """
    remedy = archive.remedy or f"An own copy of {archive.name} can be given with --archive FILE"
    path = given
    if path is None:
        path = folder / archive.name
        fetch_missing(archive.url, path, remedy)
    elif not path.is_file():
        raise DownloadError(f"--archive {path} does not exist; leave the option out to download {archive.url}")
    if archive.digests:
        say(f"{path.name}: {path.stat().st_size} bytes, comparing the checksum")
        new_copy = "remove it and fetch it again" if given is None else "get a new copy"
        check_digests(path, archive.digests, None, f"The file is damaged or another one: {new_copy}. {remedy}")
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
    except DAMAGE as error:
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
    except DAMAGE as error:
        raise DownloadError(f"{path} is damaged: {error}; get a new copy") from error
