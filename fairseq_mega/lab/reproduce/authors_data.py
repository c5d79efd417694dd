"""--processed: the authors' processed archives, fetched, unpacked, and used as they are after a check."""

import re
import shutil
import zipfile
from pathlib import Path
from typing import List, Sequence, Set

from fairseq_mega.data.card import CARD_FILE, is_recorded
from fairseq_mega.data.class_folders import walk_once
from fairseq_mega.data.text_units import tokens_of_file
from fairseq_mega.lab.prepare.archives import FETCH_AGAIN, naming_damage
from fairseq_mega.lab.prepare.dataset import Processed
from fairseq_mega.lab.prepare.download import fetch_missing
from fairseq_mega.lab.prepare.layouts import DATA_BIN
from fairseq_mega.lab.prepare.of_recipes import dataset_of, is_published
from fairseq_mega.lab.prepare.progress import print_line
from fairseq_mega.lab.prepare.registry import DATASETS
from fairseq_mega.lab.recipes.recipe import Recipe, RecipeError

from .settings import PUBLISHED, Choices

HOST = "https://dl.fbaipublicfiles.com/mega/data"  # the READMEs of facebookresearch/mega, examples/mega


def processed_of(recipe: Recipe) -> Processed:
    """Return the published form of the data of a recipe; RecipeError where there is none."""
    processed = dataset_of(recipe).processed
    if processed is None or not is_published(recipe):
        raise RecipeError(f"--processed: the authors published no processed data for {recipe.name}: omit it")
    return processed


def addresses(recipes: Sequence[Recipe], given: str) -> List[str]:
    """The address in the option, or those of the published archives that the recipes need."""
    if given != PUBLISHED:
        return [given]
    return [f"{HOST}/{name}" for name in dict.fromkeys(processed_of(recipe).archive for recipe in recipes)]


def fetch_processed(recipes: Sequence[Recipe], choices: Choices) -> None:
    """Fetch the archives that --processed names and unpack them below its folder, as far as that has not been done.

    Raises:
        RecipeError, DownloadError: if one cannot be obtained, or is damaged.
        OSError: if it cannot be unpacked.
    """
    if choices.processed is None or choices.processed_from is None:
        return
    for url in addresses(recipes, choices.processed_from):
        archive = choices.processed.parent / url.rpartition("/")[2]
        if not (choices.processed / archive.stem).is_dir():
            fetch_missing(url, archive, attempts=8, allowed=choices.download)
            unpack(archive, choices.processed / archive.stem)


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a zip file to a folder, which is there whole or not at all."""
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    print_line(f"unpacking {archive} to {folder}")
    with naming_damage(archive, FETCH_AGAIN), zipfile.ZipFile(archive) as container:
        container.extractall(partial)  # this skips members outside the folder
    partial.rename(folder)


def find_processed(recipe: Recipe, top: Path) -> Path:
    """Return the one folder below ``top`` with the files of a recipe's data and a name of its data set, checked.

    The names of folders in the archives are not published.

    Raises:
        RecipeError: if there is none, or several.
    """
    names = processed_of(recipe).names
    files = [name.replace(f"{DATA_BIN}/", "") for name in dataset_of(recipe).layout.files]
    named = [folder for folder in sorted(place for place, _, _ in walk_once(top)) if is_named(folder, top, recipe)]
    whole = [folder for folder in named if all((folder / name).is_file() for name in files)]
    if len(whole) != 1:
        raise RecipeError(
            f"--processed: {top} should have one folder of {recipe.dataset}, named {' or '.join(names)}, with "
            f"{', '.join(files)}: found {', '.join(map(str, whole or named)) or 'none'}"
        )
    check_contents(recipe, whole[0])
    return whole[0]


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


def check_contents(recipe: Recipe, folder: Path) -> None:
    """Raise a RecipeError unless vocabulary, labels and length are the task's."""
    classes, expected = int(recipe.config["model"].get("sentence_class_num", 0)), processed_of(recipe).vocab_sizes
    problems = []
    if is_recorded(folder):
        problems.append(f"its {CARD_FILE} names the command that made it; such data go with --data")
    if (folder / "src1-bin").is_dir() and not any("src1-bin" in name for name in dataset_of(recipe).layout.files):
        problems.append("it has a second text for each, src1-bin")
    if (folder / "label-bin").is_dir():
        labels = len(tokens_of_file(folder / "label-bin" / "dict.txt"))
        if labels != classes:
            problems.append(f"label-bin/dict.txt has {labels} labels, the task {classes}")
        found = len(tokens_of_file(folder / "src-bin" / "dict.txt"))
        if expected is not None and not expected[0] <= found <= expected[1]:
            sizes = " to ".join(map(str, dict.fromkeys(expected)))
            problems.append(f"src-bin/dict.txt has {found} tokens, {sizes} are expected")
    elif (folder / "input").is_dir():
        pixels = recipe.config["model"]["max_positions"]
        with (folder / "input" / "train.src").open(encoding="ascii", errors="replace") as lines:
            first = next(lines, "").split()
        if len(first) != pixels:
            problems.append(f"the first line of input/train.src is not an image of {pixels} pixels")
    if problems:
        raise RecipeError(f"--processed: {folder} is not the data of {recipe.dataset}: {'; '.join(problems)}")
