"""The released archive of the Long Range Arena (Tay et al., 2021): fetched, checked, and the part of a task unpacked.

python -m fairseq_mega.lab.prepare.lra_archive DATASET --archives DIR --output DIR
"""

import argparse
import sys
import tarfile
from pathlib import Path, PurePosixPath
from typing import List, Optional

from fairseq_mega.cli.commands import exit_status
from fairseq_mega.lab.prepare.archives import DAMAGE
from fairseq_mega.lab.prepare.classification import aan, listops
from fairseq_mega.lab.prepare.classification.lra_pathfinder import FOLDER as HARD
from fairseq_mega.lab.prepare.download import DownloadError
from fairseq_mega.lab.prepare.progress import Progress, say
from fairseq_mega.lab.prepare.unpacking import check_expansion
from fairseq_mega.lab.prepare.wmt16.archives import obtain
from fairseq_mega.lab.runs.files import copy_stream

URL = "https://storage.googleapis.com/long-range-arena/lra_release.gz"
RECORD = "lra_release.json"  # beside the archive, whose checksum is not published
FOLDERS = {  # of the archive, by data sets of fairseq-mega-prepare
    "listops": "listops-1000",
    "aan": "tsv_data",
    "pathfinder32": "pathfinder32",
    "pathx": "pathfinder128",
}
TABLES = {"listops": frozenset(listops.RELEASED.values()), "aan": frozenset(aan.FILES.values())}


def place_of(name: str, dataset: str) -> Optional[PurePosixPath]:
    """Where a member of the archive belongs, from the data set's folder on; None for those of other tasks.

    Pathfinder is the hard variant alone, as in the benchmark. What stands above the folder does not matter.
    """
    parts = PurePosixPath(name).parts
    if FOLDERS[dataset] not in parts or ".." in parts:
        return None
    inner = parts[parts.index(FOLDERS[dataset]) :]
    wanted = inner[1:2] == (HARD,) if dataset not in TABLES else len(inner) == 2 and inner[1] in TABLES[dataset]
    return PurePosixPath(*inner) if wanted else None


def unpack(archive: Path, dataset: str, output: Path) -> int:
    """Write the files of a data set below ``output``; returns how many. A file is there whole or not at all.

    Raises:
        DownloadError: where the archive is damaged or holds none of them.
        OSError: where it unpacks to far more than its size lets expect.
    """
    unpacked = count = 0
    progress = Progress(f"unpacking {FOLDERS[dataset]}", "MB", None)
    try:
        with tarfile.open(archive, "r|*") as members:
            for member in members:
                unpacked += member.size
                check_expansion(archive, unpacked)
                progress.reach(unpacked / 1e6)
                place = place_of(member.name, dataset)
                stream = members.extractfile(member) if place is not None and member.isfile() else None
                if place is None or stream is None:
                    continue
                with stream:
                    copy_stream(stream, output / place)
                count += 1
    except DAMAGE as error:
        raise DownloadError(f"{archive} cannot be unpacked: {error}; remove it and fetch it again") from error
    if count == 0 or not all((output / FOLDERS[dataset] / name).is_file() for name in TABLES.get(dataset, ())):
        raise DownloadError(f"{archive} holds no whole data of {dataset}; is it the archive {URL}?")
    return count


def main(arguments: Optional[List[str]] = None) -> int:
    """Run the command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="lra_release", description=__doc__)
    parser.add_argument("dataset", choices=list(FOLDERS), help="whose files are wanted")
    parser.add_argument(
        "--archives", type=Path, required=True, metavar="DIR", help="folder that holds or gets it, 8 GB"
    )
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder for the unpacked files")
    parser.add_argument("--no-download", action="store_true", help="take the archive that is there, or refuse")
    options = parser.parse_args(arguments)

    def run() -> None:
        path = obtain(URL, options.archives, options.archives / RECORD, not options.no_download)
        say(f"{unpack(path, options.dataset, options.output)} files of {options.dataset} in {options.output}")

    return exit_status("lra_release", run)


if __name__ == "__main__":
    sys.exit(main())
