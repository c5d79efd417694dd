"""List the data of the Long Range Arena and of speech that are still to be made, before the first training starts.

    python fairseq_mega/lab/prepare/classification/missing.py TASK=DIR...

Prints the tasks whose folder holds no data yet, one a line; an error where data are broken or cannot be made. Run by
its path it imports nothing of the package, so that it starts at once.
"""

import argparse
import sys
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple

SPLITS = ("train", "valid", "test")
UNFINISHED = "unfinished"  # fairseq-mega-prepare is still at work, or was stopped


def binarised(*folders: str) -> List[str]:
    """Files of texts and labels that fairseq-preprocess made."""
    names = ["dict.txt", *(f"{split}.{ending}" for split in SPLITS for ending in ("bin", "idx"))]
    return [f"{folder}/{name}" for folder in folders for name in names]


TEXTS = binarised("src-bin", "label-bin")
IMAGES = [name for split in SPLITS for name in (f"input/{split}.src", f"label/{split}.label")]
FILES: Dict[str, List[str]] = {
    "listops": TEXTS,
    "text": TEXTS,
    "retrieval": [*TEXTS, *binarised("src1-bin")],
    "image": IMAGES,
    "pathfinder": IMAGES,
    "pathx": IMAGES,
    "speech": [f"processed_data/raw/{split}_{kind}.pt" for split in ("train", "val", "test") for kind in ("X", "y")],
}
CANNOT_BE_FETCHED = {
    "retrieval": "those of --task retrieval cannot be fetched alone: make them with 'fairseq-mega-prepare aan "
    "--tsv-dir DIR --out {folder}' (see its --help), give --released to have the archive of the Long Range Arena "
    "(8 GB) fetched, or name the other tasks with --task"
}


def is_there(task: str, folder: Path) -> bool:
    """Whether the folder holds the whole data of a task; False where they are still to be made.

    Raises:
        ValueError: if it holds a part of them, which nothing will complete.
    """
    missing = [name for name in FILES[task] if not (folder / name).is_file()]
    if (folder / UNFINISHED).exists() or len(missing) == len(FILES[task]):
        return False
    if missing:
        raise ValueError(
            f"the data of --task {task} in {folder} are incomplete, {', '.join(missing[:3])} "
            f"{'is' if len(missing) == 1 else 'are'} missing: complete them, or remove them to have them made anew"
        )
    return True


def to_make(places: Sequence[Tuple[str, Path]], made_up: bool) -> List[str]:
    """The tasks whose data are still to be made; with ``made_up`` all of them can be.

    Raises:
        ValueError: naming all data that are incomplete or cannot be made.
    """
    wanted, problems = [], []
    for task, folder in places:
        try:
            if is_there(task, folder):
                continue
        except ValueError as error:
            problems.append(str(error))
            continue
        wanted.append(task)
        if task in CANNOT_BE_FETCHED and not made_up:
            problems.append(f"{folder} holds no data, and {CANNOT_BE_FETCHED[task].format(folder=folder)}")
    if problems:
        raise ValueError("; ".join(problems))
    return wanted


def place(text: str) -> Tuple[str, Path]:
    """TASK=DIR."""
    task, equals, folder = text.partition("=")
    if task not in FILES or not equals or not folder:
        raise argparse.ArgumentTypeError(f"{text!r}: TASK=DIR is needed, the task one of {', '.join(FILES)}")
    return task, Path(folder)


def main(arguments: Optional[List[str]] = None) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(prog="missing", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("places", type=place, nargs="+", metavar="TASK=DIR", help="a task and the folder of its data")
    parser.add_argument("--smoke", action="store_true", help="missing data will be made up")
    options = parser.parse_args(arguments)
    try:
        print("\n".join(to_make(options.places, options.smoke)))
    except ValueError as error:
        print(f"missing: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
