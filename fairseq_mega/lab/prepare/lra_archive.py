"""The released archive of the Long Range Arena (Tay et al., 2021): fetched, checked, and one task's part unpacked."""

import argparse
from pathlib import Path, PurePosixPath
from typing import Optional

from fairseq_mega.lab.prepare.archives import FETCH_AGAIN, obtain_recorded, tar_files
from fairseq_mega.lab.prepare.download import DownloadError
from fairseq_mega.lab.prepare.progress import Progress, say
from fairseq_mega.lab.prepare.unpacking import naming_damage
from fairseq_mega.lab.prepare.work_folder import WorkFolder
from fairseq_mega.lab.runs.files import copy_stream

URL = "https://storage.googleapis.com/long-range-arena/lra_release.gz"
RECORD = "lra_release.json"  # beside the archive, whose checksum is not published
FOLDERS = {  # of the archive, by data sets of fairseq-mega-prepare
    "listops": "listops-1000",
    "aan": "tsv_data",
    "pathfinder32": "pathfinder32",
    "pathx": "pathfinder128",
}
TABLES = {  # in the folder, by split
    "listops": {"train": "basic_train.tsv", "valid": "basic_val.tsv", "test": "basic_test.tsv"},
    "aan": {
        "train": "new_aan_pairs.train.tsv",
        "valid": "new_aan_pairs.eval.tsv",
        "test": "new_aan_pairs.test.tsv",
    },
}
HARD = "curv_contour_length_14"  # the hard variant of Pathfinder, the only one of the benchmark


def add_released(parser: argparse.ArgumentParser) -> None:
    """Add the options for the files of the archive; --released is None where it is not given."""
    released = "use the files of the released archive; downloads 8 GB"
    parser.add_argument("--released", action="store_const", const=True, help=released)
    archives = "folder of this archive, which is downloaded into it where missing (default: raw in --out)"
    parser.add_argument("--archives", type=Path, metavar="DIR", help=archives)
    parser.add_argument(
        "--no-download", action="store_true", help="fail if the archive is missing, instead of downloading it"
    )


def released_files(args: argparse.Namespace, work: WorkFolder, dataset: str) -> Path:
    """Return the folder of a data set's files, fetched and unpacked; it is no part of the data set that is made.

    Raises:
        DownloadError: if the archive cannot be obtained, is damaged, or has none of the files.
        OSError: if it unpacks to far more than its size suggests.
    """
    archives = args.archives or work.raw

    def make(folder: Path) -> None:
        archive = obtain_recorded(URL, archives, archives / RECORD, not args.no_download)
        say(f"{unpack(archive, dataset, folder)} files of {dataset} unpacked")

    return work.part("released", make) / FOLDERS[dataset]


def place_of(name: str, dataset: str) -> Optional[PurePosixPath]:
    """Return the path of a member of the archive from the data set's folder on; None for members of other tasks.

    Pathfinder is the hard variant alone, as in the benchmark. Folders above the data set's folder do not matter.
    """
    parts = PurePosixPath(name).parts
    if FOLDERS[dataset] not in parts or ".." in parts:
        return None
    inner = parts[parts.index(FOLDERS[dataset]) :]
    wanted = (
        inner[1:2] == (HARD,) if dataset not in TABLES else len(inner) == 2 and inner[1] in TABLES[dataset].values()
    )
    return PurePosixPath(*inner) if wanted else None


def unpack(archive: Path, dataset: str, output: Path) -> int:
    """Write the files of a data set below ``output``; return their number. A file is there whole or not at all.

    Raises:
        DownloadError: where the archive is damaged or holds none of them.
        OSError: if it unpacks to far more than its size suggests.
    """
    count = 0
    progress = Progress(f"unpacking {FOLDERS[dataset]}", "MB", None)
    with naming_damage(archive, FETCH_AGAIN):
        for member, stream in progress.follow(tar_files(archive), size=lambda file: file[0].size / 1e6):
            place = place_of(member.name, dataset)
            if place is not None:
                copy_stream(stream, output / place)
                count += 1
    if count == 0 or not all((output / FOLDERS[dataset] / name).is_file() for name in TABLES.get(dataset, {}).values()):
        raise DownloadError(f"{archive} holds no whole data of {dataset}; is it the archive {URL}?")
    return count
