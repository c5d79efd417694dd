"""Description of the data that weights from elsewhere are scored on: origin, size of the test set, validation set."""

import filecmp
from pathlib import Path
from typing import Callable, Dict, List, Optional, Tuple

import torch
from fairseq.data.data_utils import load_indexed_dataset

from fairseq_mega.data.image_folder import ImageFolder, split_folder
from fairseq_mega.lab.runs.files import count_lines

from .choices import Choices
from .origins import data_of, source_of
from .runs import Run, sentences


def entries(path: Path) -> int:
    """Number of entries of a binarised file."""
    return len(load_indexed_dataset(str(path.with_suffix("")), None))


def tokens(path: Path) -> int:
    """Number of tokens of a binarised file."""
    dataset = load_indexed_dataset(str(path.with_suffix("")), None)  # the sizes are views of its memory
    return int(dataset.sizes.sum())


def length(path: Path) -> int:
    """Length of a saved tensor."""
    return len(torch.load(path, weights_only=True))


COUNTS: Dict[str, Tuple[Callable[[Path], int], str]] = {  # by a file of the test set: its count, and of what
    "label-bin/test.idx": (entries, "examples"),
    "label/test.label": (count_lines, "examples"),
    "processed_data/raw/test_y.pt": (length, "examples"),
    "test.jsonl": (count_lines, "documents"),
    "test.idx": (tokens, "tokens"),
}
TESTS = ("test.*", "*/test.*", "processed_data/raw/test_*")  # files of a test set


def describe(run: Run, choices: Choices) -> List[str]:
    """Return lines on the data of a run: their origin, the size of the test set, and whether it validates, too."""
    source = source_of(run.data)
    origin = [data_of(run, choices), *filter(None, [source.get("origin")])]
    lines = [f"data: {': '.join(origin)}", *(f"data: {note}" for note in source.get("notes", []))]
    if run.recipe.evaluate["kind"] == "images":
        images = len(ImageFolder(split_folder(run.data, "valid")))
        return [*lines, f"test set: {images:,} examples, those of the validation set"]
    if run.recipe.evaluate["kind"] == "translation":
        return [*lines, f"test set: {sentences(run):,} sentences"]
    told = "the validation set is the test set" if is_validation(run.data) else "the validation set is another"
    return [*lines, f"test set: {size_of_test(run.data) or 'of unknown size'}; {told}"]


def size_of_test(folder: Path) -> Optional[str]:
    """Return the number of examples or tokens of a test set, or None for files of another kind."""
    for name, (count, counted) in COUNTS.items():
        if (folder / name).is_file():
            return f"{count(folder / name):,} {counted}"
    return None


def is_validation(folder: Path) -> bool:
    """Return whether the files of the test set are those of the validation set."""
    tests = [path for pattern in TESTS for path in folder.glob(pattern) if path.is_file()]
    twins = [
        next((twin for name in ("valid", "val") if (twin := path.with_name(name + path.name[4:])).is_file()), None)
        for path in tests
    ]
    return bool(tests) and all(
        twin is not None and filecmp.cmp(path, twin, shallow=False) for path, twin in zip(tests, twins)
    )
