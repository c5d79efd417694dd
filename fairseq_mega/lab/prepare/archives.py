"""Archives and packed files: own copies or downloads, checked, and read without unpacking them to disk."""

import json
import tarfile
from pathlib import Path
from typing import IO, Callable, Dict, Iterator, NamedTuple, Optional, Tuple

from fairseq_mega.lab.prepare.checksums import Records, check_digests, record_of
from fairseq_mega.lab.prepare.download import DownloadError, fetch_missing
from fairseq_mega.lab.prepare.progress import say
from fairseq_mega.lab.prepare.unpacking import check_expansion, naming_damage, open_gzip
from fairseq_mega.lab.runs.files import blocks_of, write_json

FETCH_AGAIN = "remove the file, and run the command again"


class Archive(NamedTuple):
    """The address of an archive, its digests, and the remedy where it cannot be obtained."""

    url: str
    digests: Dict[str, str]  # hexadecimal, by the name that hashlib knows
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
    path = given
    if path is None:
        path = folder / archive.name
        fetch_missing(archive.url, path, remedy)
    elif not path.is_file():
        raise DownloadError(f"--archive {path} does not exist; leave the option out to download {archive.url}")
    if archive.digests:
        say(f"{path.name}: {path.stat().st_size} bytes, comparing the checksum")
        new_copy = FETCH_AGAIN if given is None else "get a new copy"
        check_digests(path, archive.digests, None, f"The file is damaged or another one: {new_copy}. {remedy}")
    return path, {path.name: record_of(path, **({} if given else {"url": archive.url}))}


def check_gzip(path: Path) -> None:
    """Read a gzip file to its end.

    Raises:
        DownloadError: if it is cut off, damaged or empty.
        OSError: if it unpacks to far more than its size suggests.
    """
    with naming_damage(path, FETCH_AGAIN), open_gzip(path) as stream:
        if not sum(map(len, blocks_of(stream))):
            raise DownloadError(f"{path} is an empty archive; {FETCH_AGAIN}")


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
    path = folder / name
    records = read_records(record_file)
    fetch_missing(url, path, attempts=8, allowed=allow_download)
    known, said = records.get(name), "as recorded"
    if known is None:
        say(f"{name}: {path.stat().st_size} bytes, checking")
        check(path)
        known = records[name] = record_of(path, url=url)
        said = "recorded"
        write_json(record_file, records)
    else:
        remedy = f"Remove it and fetch it again, or remove its entry from {record_file} if the new file is wanted"
        check_digests(path, {"sha256": known["sha256"]}, known["bytes"], remedy)
    say(f"{name}: {known['bytes']} bytes, SHA-256 {known['sha256']}, {said}")
    return path


def read_records(path: Path) -> Records:
    """Return the recorded sizes and checksums, ``{name: {"url", "bytes", "sha256"}}``; ``{}`` without a record."""
    if not path.exists():
        return {}
    try:
        records: Records = json.loads(path.read_text(encoding="utf-8"))
        if all({"bytes", "sha256"} <= set(entry) for entry in records.values()):
            return records
        problem = "an entry lacks bytes or sha256"
    except (ValueError, AttributeError, TypeError) as error:
        problem = str(error)
    raise DownloadError(f"{path} is not a list of checksums ({problem}); remove the file to record them again")


def tar_files(path: Path) -> Iterator[Tuple[tarfile.TarInfo, IO[bytes]]]:
    """Yield the files of a packed tar in its order, each with a stream of its content, to be read before the next.

    Raises OSError before a file is read with which they would unpack to too much. Reading the streams can show damage,
    too, which the caller names by :func:`.unpacking.naming_damage`.
    """
    unpacked = 0
    with tarfile.open(path, "r|*") as archive:
        for member in archive:
            unpacked += member.size
            check_expansion(path, unpacked)
            stream = archive.extractfile(member) if member.isfile() else None
            if stream is not None:
                yield member, stream


def read_tar(path: Path, wanted: Callable[[str], bool]) -> Iterator[Tuple[str, bytes]]:
    """Yield name (without a leading ``./``) and content of the files of a packed tar, in its order.

    Raises :class:`DownloadError` naming the archive when it is damaged, OSError when it unpacks to too much.
    """
    with naming_damage(path):
        for member, stream in tar_files(path):
            name = member.name[2:] if member.name.startswith("./") else member.name
            if wanted(name):
                yield name, stream.read()


def open_packed(path: Path) -> IO[bytes]:
    """Open a file that may be packed with gzip, as its first bytes show."""
    with open(path, "rb") as stream:
        packed = stream.read(2) == b"\x1f\x8b"
    return open_gzip(path) if packed else open(path, "rb")
