"""The authors' processed archives as data: each task's folder is found in them, its vocabulary and labels are checked.

The names of folders in the archives are not published, so that folders are identified by their files.
"""

import re
from itertools import islice
from pathlib import Path
from typing import List, Sequence, Set, Tuple

from fairseq_mega.data.card import CARD_FILE, is_recorded
from fairseq_mega.data.class_folders import walk_once
from fairseq_mega.data.text_units import symbols_of_file
from fairseq_mega.lab.prepare.of_recipes import dataset_of
from fairseq_mega.lab.prepare.registry import DATASETS
from fairseq_mega.lab.recipes.recipe import Recipe, RecipeError

from .authors_archives import processed_of


def find_processed(recipe: Recipe, top: Path) -> Path:
    """The folder of a recipe's data below ``top``, checked.

    Raises:
        RecipeError: if there is no such folder, with the contents of the nearest one.
    """
    if not top.is_dir():
        raise RecipeError(
            f"--processed: {top} is not a folder: unpack the authors' archives into one, or give --processed published"
        )
    processed_of(recipe)  # or an error
    files = [name.replace("data-bin/", "") for name in dataset_of(recipe).layout.files]
    folders = {*filter(Path.is_dir, top.rglob("*")), *(place for place, _, _ in walk_once(top))}
    named = [folder for folder in sorted(folders) if is_named(folder, top, recipe)]
    whole = [folder for folder in named if all((folder / name).is_file() for name in files)]
    if len({folder.resolve() for folder in whole}) > 1:
        raise RecipeError(f"--processed: {whole[0]} and {whole[1]} may both be {recipe.dataset}: give one of them")
    if whole:
        check_contents(recipe, whole[0])
        return whole[0]
    raise RecipeError(f"--processed: {top} holds no whole data of {recipe.dataset}{what_is_missing(named, files)}")


def is_named(folder: Path, top: Path, recipe: Recipe) -> bool:
    """Return whether the last part of the path below ``top`` that names a data set names this one."""
    parts = [top.name] if folder == top else folder.relative_to(top).parts
    return recipe.dataset in next(filter(None, map(data_sets_of, reversed(parts))), ())


def data_sets_of(part: str) -> Set[str]:
    """Data sets that a part of a path names; a name within a longer one does not count, as text in wikitext."""
    processed = {data: dataset.processed.names for data, dataset in DATASETS.items() if dataset.processed is not None}
    found = {name: data for data, names in processed.items() for name in names if is_within(name, part.lower())}
    return {data for name, data in found.items() if not any(name != other and name in other for other in found)}


def is_within(name: str, part: str) -> bool:
    """Return whether a name is in a part of a path; one of two letters has to stand apart from others."""
    return name in part if len(name) > 2 else re.search(f"(?<![a-z]){name}(?![a-z])", part) is not None


def what_is_missing(named: Sequence[Path], files: Sequence[str]) -> str:
    """Return the rest of an error: the files that the nearest folder lacks."""
    counted = [([name for name in files if not (folder / name).is_file()], folder) for folder in named]
    missing, folder = min(counted, key=lambda pair: len(pair[0]), default=([], None))
    if folder is None or len(missing) == len(files):
        return f": a folder with {', '.join(files[:2])} and the like is needed"
    text = f": {folder} lacks {', '.join(missing[:3])}"
    if all(name.startswith("src") for name in missing):
        text += (
            " (an archive without its src-bin was published once, facebookresearch/mega#1: get it again, or binarise "
        )
        text += "its texts with fairseq-preprocess)"
    return text


def check_contents(recipe: Recipe, folder: Path) -> None:
    """Raise a RecipeError unless vocabulary, labels and length are the task's."""
    classes, expected = int(recipe.config["model"].get("sentence_class_num", 0)), processed_of(recipe).symbols
    problems = []
    if is_recorded(folder):
        problems.append(f"its {CARD_FILE} names the command that made it; such data go with --data")
    if (folder / "src1-bin").is_dir() and not any("src1-bin" in name for name in dataset_of(recipe).layout.files):
        problems.append("it has a second text for each, src1-bin")
    if (folder / "label-bin").is_dir():
        labels = len(symbols_of_file(folder / "label-bin" / "dict.txt"))
        if labels != classes:
            problems.append(f"label-bin/dict.txt has {labels} labels, the task {classes}")
        found = len(symbols_of_file(folder / "src-bin" / "dict.txt"))
        if expected is not None and not expected[0] <= found <= expected[1]:
            wanted = " to ".join(map(str, dict.fromkeys(expected)))
            problems.append(f"src-bin/dict.txt has {found} symbols, {wanted} are expected")
    elif (folder / "input").is_dir():
        problems += image_problems(folder, recipe.config["model"]["max_positions"], classes)
    if problems:
        raise RecipeError(f"--processed: {folder} is not the data of {recipe.dataset}: {'; '.join(problems)}")


def image_problems(folder: Path, pixels: int, classes: int) -> List[str]:
    """Return the faults of the first image of each split, and of the labels; none if both are right."""
    problems = []
    for split in ("train", "valid", "test"):
        with (folder / "input" / f"{split}.src").open(encoding="ascii", errors="replace") as lines:
            first: Tuple[str, ...] = tuple(next(islice(lines, 1), "").split())
        if len(first) != pixels or not all(word.isdigit() and int(word) < 256 for word in first):
            problems.append(f"the first line of input/{split}.src is not an image of {pixels} pixels from 0 to 255")
        labels = set((folder / "label" / f"{split}.label").read_text(encoding="ascii").split())
        if split == "train" and len(labels) < classes:
            problems.append(f"label/{split}.label has {len(labels)} labels, the task {classes}")
        if not labels <= set(map(str, range(classes))):
            problems.append(f"label/{split}.label has labels beyond 0 to {classes - 1}")
    return problems
