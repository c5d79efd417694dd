"""Archives and packed files: own copies or downloads, checked, and read as they are; their lines and tables."""

import argparse
import gzip
import tarfile
import zipfile
import zlib
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple, cast

from fairseq_mega.lab.prepare.download import DownloadError, Records, check_digests, fetch_missing, record_of
from fairseq_mega.lab.prepare.options import Option, folder_option, option, switch
from fairseq_mega.lab.prepare.progress import follow, print_line
from fairseq_mega.lab.prepare.work_folder import WorkFolder
from fairseq_mega.lab.runs.files import blocks_of, copy_stream

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


# --- The released archive of the Long Range Arena (Tay et al., 2021)

LRA = "https://storage.googleapis.com/long-range-arena/lra_release.gz"
HARD = "curv_contour_length_14"  # the hard variant of Pathfinder, the only one of the benchmark


class Part(NamedTuple):
    """Part of the archive that a data set is read from."""

    folder: str  # its name in the archive
    tables: Mapping[str, str] = {}  # names of its files by split; none for images of the hard variant of Pathfinder

    def paths(self, folder: Path) -> Dict[str, Path]:
        """Return the tables by split in a folder."""
        return {split: folder / name for split, name in self.tables.items()}


# --released is None by default.
RELEASED: Tuple[Option, ...] = (
    option("--released", action="store_const", const=True, help="use the released archive; downloads 8 GB"),
    folder_option("--archives", text="folder of this archive, fetched where it is missing (default: raw in --out)"),
    switch("--no-download", "fail if the archive is missing, instead of downloading it"),
)


def released_files(args: argparse.Namespace, work: WorkFolder, part: Part) -> Path:
    """Return the folder of a part's files, fetched and unpacked; it is no part of the data set that is made."""
    archive = (args.archives or work.raw) / name_of(LRA)

    def make(folder: Path) -> None:
        fetch_missing(LRA, archive, allowed=not args.no_download)
        print_line(f"{unpack_part(archive, part, folder)} files of {part.folder} unpacked")

    return work.part("released", make) / part.folder


def place_of(name: str, part: Part) -> Optional[PurePosixPath]:
    """Return the path of a member of the archive from the data set's folder on; None for members of other tasks.

    Pathfinder is the hard variant alone, as in the benchmark. Folders above the data set's folder do not matter.
    """
    parts = PurePosixPath(name).parts
    if part.folder not in parts or ".." in parts:
        return None
    inner = parts[parts.index(part.folder) :]
    selected = len(inner) == 2 and inner[1] in part.tables.values() if part.tables else inner[1:2] == (HARD,)
    return PurePosixPath(*inner) if selected else None


def unpack_part(archive: Path, part: Part, output: Path) -> int:
    """Write the files of a part below ``output``; return their number. A file is there whole or not at all.

    Raises :class:`DownloadError` where the archive is damaged or holds none of them.
    """
    count = 0
    with naming_damage(archive, FETCH_AGAIN):
        files = follow(tar_files(archive), f"unpacking {part.folder}", "B", size=lambda file: file[0].size)
        for member, stream in files:
            place = place_of(member.name, part)
            if place is not None:
                copy_stream(stream, output / place)
                count += 1
    if count == 0 or not all((output / part.folder / name).is_file() for name in part.tables.values()):
        raise DownloadError(f"{archive} holds no whole data of {part.folder}; is it the archive {LRA}?")
    return count
