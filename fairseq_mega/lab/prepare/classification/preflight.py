"""Check before the first training which data of the Long Range Arena and of speech are still to be made."""

from pathlib import Path
from typing import Dict, List

from fairseq_mega.lab.prepare.binarised import FILES as BINARISED
from fairseq_mega.lab.prepare.splits import SPLITS
from fairseq_mega.lab.prepare.work_folder import UNFINISHED


def binarised(*folders: str) -> List[str]:
    """Files of texts and labels that fairseq-preprocess made."""
    return [f"{folder}/{name}" for folder in folders for name in BINARISED]


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
    "retrieval": "the data of task retrieval cannot be fetched alone: make them with 'fairseq-mega-prepare aan "
    "--tsv-dir DIR --out {folder}' (see its --help), give --released to have the archive of the Long Range Arena "
    "(8 GB) fetched, or choose other tasks with --where task=LIST"
}


def is_there(task: str, folder: Path) -> bool:
    """Return whether a folder holds the whole data of a task; False where they are still to be made.

    Raises:
        ValueError: if it holds only a part of them, which no command completes.
    """
    missing = [name for name in FILES[task] if not (folder / name).is_file()]
    if (folder / UNFINISHED).exists() or len(missing) == len(FILES[task]):
        return False
    if missing:
        raise ValueError(
            f"the data of task {task} in {folder} are incomplete, {', '.join(missing[:3])} "
            f"{'is' if len(missing) == 1 else 'are'} missing: complete the data, or remove them to make them again"
        )
    return True


def check_can_be_made(task: str, folder: Path, fetched: bool) -> None:
    """Raise ValueError where the data of a task are incomplete, or are not there and cannot be made.

    Args:
        fetched: whether their sources are there.
    """
    if not is_there(task, folder) and not fetched and task in CANNOT_BE_FETCHED:
        raise ValueError(f"{folder} holds no data, and {CANNOT_BE_FETCHED[task].format(folder=folder)}")
