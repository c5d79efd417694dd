"""Packed files, read within a limit: a small file must not fill memory or disk."""

import gzip
import io
import tarfile
import zipfile
import zlib
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, Iterator

from fairseq_mega.lab.prepare.download import DownloadError

LEAST = 64 << 20  # bytes that any file may unpack to
EXPANSION = 200  # times its size that a larger one may: text packs to a tenth, a file made for harm to a thousandth


DAMAGE = (EOFError, gzip.BadGzipFile, zlib.error, tarfile.TarError, zipfile.BadZipFile)


class ExpansionError(OSError):
    """A file unpacks to far more than its size suggests."""


@contextmanager
def naming_damage(path: Path, remedy: str = "get a new copy") -> Iterator[None]:
    """Raise :class:`DownloadError` that names a packed file and the remedy where reading it shows damage."""
    try:
        yield
    except DAMAGE as error:
        raise DownloadError(f"{path} cannot be unpacked: {error}; {remedy}") from error


def most_unpacked(path: Path) -> int:
    """Bytes that a packed file may unpack to."""
    return max(LEAST, EXPANSION * path.stat().st_size)


def check_expansion(path: Path, unpacked: int) -> None:
    """Raise :class:`ExpansionError` if so many unpacked bytes are too many for a packed file."""
    most = most_unpacked(path)
    if unpacked > most:
        raise ExpansionError(
            f"{path} has {path.stat().st_size} bytes and unpacks to {unpacked} or more, of which {most} are allowed "
            f"({EXPANSION} times its size): it is not an archive of a data set; get another copy"
        )


def check_zip(path: Path) -> None:
    """Raise :class:`ExpansionError` if the members of a zip file are too large by their stated sizes.

    Python reads no more of a member than its stated size. Raises zipfile.BadZipFile for another kind of file, or for a
    member outside the folder that it is unpacked to.
    """
    with zipfile.ZipFile(path) as container:
        members = container.infolist()
    check_expansion(path, sum(member.file_size for member in members))
    for member in members:
        parts = PurePosixPath(member.filename.replace("\\", "/")).parts
        if ".." in parts or parts[:1] == ("/",) or ":" in "".join(parts[:1]):
            raise zipfile.BadZipFile(f"its member {member.filename!r} leads out of the folder")


def open_gzip(path: Path) -> IO[bytes]:
    """Open a gzip file for reading; reading raises :class:`ExpansionError` where it unpacks to too much."""
    return io.BufferedReader(_Limited(path), 1 << 20)


class _Limited(io.RawIOBase):
    """The unpacked bytes of a gzip file, up to the limit."""

    def __init__(self, path: Path) -> None:
        self._path, self._stream, self._read = path, gzip.GzipFile(path, "rb"), 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        block = self._stream.read(len(buffer))
        self._read += len(block)
        check_expansion(self._path, self._read)
        buffer[: len(block)] = block
        return len(block)

    def close(self) -> None:
        self._stream.close()
        super().close()
