"""The released archive of the Long Range Arena (Tay et al., 2021): fetched, checked, and one task's part unpacked."""

import argparse
from pathlib import Path, PurePosixPath
from typing import Dict, Mapping, NamedTuple, Optional, Tuple

from fairseq_mega.lab.prepare.archives import FETCH_AGAIN, name_of, naming_damage, tar_files
from fairseq_mega.lab.prepare.download import DownloadError, fetch_missing
from fairseq_mega.lab.prepare.options import Option, folder_option, option, switch
from fairseq_mega.lab.prepare.progress import follow, print_line
from fairseq_mega.lab.prepare.work_folder import WorkFolder
from fairseq_mega.lab.runs.files import copy_stream

URL = "https://storage.googleapis.com/long-range-arena/lra_release.gz"
HARD = "curv_contour_length_14"  # the hard variant of Pathfinder, the only one of the benchmark


class Part(NamedTuple):
    """Part of the archive that a data set is read from."""

    folder: str  # its name in the archive
    tables: Mapping[str, str] = {}  # names of its files by split; none for images of the hard variant of Pathfinder

    def paths(self, folder: Path) -> Dict[str, Path]:
        """Return the tables by split in a folder."""
        return {split: folder / name for split, name in self.tables.items()}

    def check(self, archives: Path, download: bool) -> None:
        """Raise ValueError where the archive is neither there nor may be fetched."""
        archive = archives / name_of(URL)
        if not download and not archive.exists():
            raise ValueError(f"{archive} does not exist: fetch {URL}, or omit --no-download")


# --released is None by default.
RELEASED: Tuple[Option, ...] = (
    option("--released", action="store_const", const=True, help="use the released archive; downloads 8 GB"),
    folder_option("--archives", text="folder of this archive, fetched where it is missing (default: raw in --out)"),
    switch("--no-download", "fail if the archive is missing, instead of downloading it"),
)


def released_files(args: argparse.Namespace, work: WorkFolder, part: Part) -> Path:
    """Return the folder of a part's files, fetched and unpacked; it is no part of the data set that is made."""
    archive = (args.archives or work.raw) / name_of(URL)

    def make(folder: Path) -> None:
        fetch_missing(URL, archive, allowed=not args.no_download)
        print_line(f"{unpack(archive, part, folder)} files of {part.folder} unpacked")

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


def unpack(archive: Path, part: Part, output: Path) -> int:
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
        raise DownloadError(f"{archive} holds no whole data of {part.folder}; is it the archive {URL}?")
    return count
