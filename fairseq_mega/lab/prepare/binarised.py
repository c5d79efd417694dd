"""Binarised text: made by fairseq-preprocess, read back and counted."""

import shutil
from pathlib import Path
from typing import Any, Dict, List, Sequence

import numpy as np

from fairseq_mega.lab.prepare.progress import SPLITS, print_line
from fairseq_mega.lab.runs.commands import PYTHON, environment, run_command

PREPROCESS = [*PYTHON, "fairseq_cli.preprocess"]
FILES = ("dict.txt", *(f"{split}.{ending}" for split in SPLITS for ending in ("bin", "idx")))  # of a folder
SCAN_TOKENS = 1 << 22


def split_options() -> List[str]:
    """Return the options of fairseq-preprocess that name the splits of a text, for :func:`binarise`."""
    return [word for split in SPLITS for word in (f"--{split}pref", split)]


def binarise(text: Path, words: Sequence[object], target: Path, log: Path) -> None:
    """Make a folder of binarised data, which appears whole.

    Args:
        text: folder of the text.
        words: options of fairseq-preprocess but for the target, with names of files within ``text``: fairseq separates
            names by commas, which the name of the folder may contain.
        log: for its output.

    Raises:
        StageError: where fairseq fails.
    """
    partial = target.with_name(f"{target.name}.partial")
    for folder in (partial, target):
        shutil.rmtree(folder, ignore_errors=True)
    print_line(f"binarising; its log is {log}")
    # Its worker processes would outlive it, waiting for work: they end with its group.
    command = [*PREPROCESS, *map(str, words), "--destdir", str(partial.absolute())]
    run_command(command, log, environment({}), own_group=True, folder=text)
    partial.rename(target)


def binarised_counts(data: Path, split: str, dictionary: Any) -> Dict[str, int]:
    """Return lines, tokens and unknown words of a binarised split."""
    from fairseq.data.indexed_dataset import MMapIndexedDataset, data_file_path, index_file_path

    prefix = str(data / split)
    index = MMapIndexedDataset.Index(index_file_path(prefix))
    tokens = np.memmap(data_file_path(prefix), dtype=index.dtype, mode="r")
    unknown = sum(
        int((tokens[begin : begin + SCAN_TOKENS] == dictionary.unk()).sum())
        for begin in range(0, len(tokens), SCAN_TOKENS)
    )
    return {"lines": len(index.sizes), "tokens": len(tokens), "unknown": unknown}
