"""Description of the data that weights from elsewhere are scored on: origin, size of the test set, validation set."""

import filecmp
from pathlib import Path
from typing import List

from fairseq_mega.data.image_folder import ImageFolder, split_folder
from fairseq_mega.lab.prepare.layouts import Layout
from fairseq_mega.lab.prepare.of_recipes import dataset_of

from .choices import Choices
from .origins import data_of, source_of
from .runs import Run, sentences


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
    layout = dataset_of(run.recipe).layout
    told = "the validation set is the test set" if is_validation(layout, run.data) else "the validation set is another"
    return [*lines, f"test set: {layout.test_size(run.data) or 'of unknown size'}; {told}"]


def is_validation(layout: Layout, data: Path) -> bool:
    """Return whether the files of the test set are those of the validation set."""
    tests = layout.test_files(data)
    twins = [
        next((twin for name in ("valid", "val") if (twin := path.with_name(name + path.name[4:])).is_file()), None)
        for path in tests
    ]
    return bool(tests) and all(
        twin is not None and filecmp.cmp(path, twin, shallow=False) for path, twin in zip(tests, twins)
    )
