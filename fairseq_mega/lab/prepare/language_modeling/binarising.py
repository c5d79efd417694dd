"""fairseq-preprocess of the three parts of a text, which appear together, and signs of life meanwhile."""

import shutil
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import Callable, Iterator, List

from fairseq_mega.lab.prepare.progress import say
from fairseq_mega.lab.prepare.splits import SPLITS
from fairseq_mega.lab.runs.commands import PYTHON, environment, run_command

PREPROCESS = [*PYTHON, "fairseq_cli.preprocess"]
EVERY = 15.0  # seconds between signs of life


def preprocess_words(text: Path, target: Path, workers: int, threshold: int = 0) -> List[str]:
    """Arguments of fairseq-preprocess that binarise ``text``, the output of ``split_text``."""
    parts = [word for split in SPLITS for word in (f"--{split}pref", str(text / split))]
    # fairseq binarises one part itself, but only when its other processes have done theirs: hence one more.
    processes = workers + 1 if workers > 1 else 1
    words = ["--only-source", *parts, "--destdir", str(target), "--workers", str(processes)]
    return [*words, "--thresholdsrc", str(threshold)] if threshold else words


def binarise(text: Path, target: Path, log: Path, workers: int, threshold: int = 0) -> None:
    """Make binarised data of ``text``, the output of ``split_text``, which appear together.

    Args:
        log: for the output of fairseq-preprocess.
        threshold: words that are seen less often become ``<unk>``.

    Raises:
        StageError: where fairseq fails.
    """
    partial = target.with_name(f"{target.name}.partial")
    for folder in (partial, target):
        shutil.rmtree(folder, ignore_errors=True)

    def progress() -> str:
        if (partial / "dict.txt").exists():
            return f"{megabytes(partial):.0f} MB written"
        return f"counting the tokens of {megabytes(text):.0f} MB for the dictionary"

    with signs_of_life("binarise", progress):
        # Its worker processes would outlive it, waiting for work: they end with its group.
        words = preprocess_words(text, partial, workers, threshold)
        run_command([*PREPROCESS, *words], log, environment({}), own_group=True)
    partial.rename(target)


def megabytes(folder: Path) -> float:
    """Size of the files of a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


@contextmanager
def signs_of_life(name: str, progress: Callable[[], str]) -> Iterator[None]:
    """Say now and then how far something is that says nothing itself."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(EVERY):
            say(f"{name}: {progress()}")

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
