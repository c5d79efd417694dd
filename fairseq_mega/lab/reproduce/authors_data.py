"""Archives of the papers' authors: fetched, unpacked, and their processed data used as they are after a check."""

import shutil
import zipfile
from pathlib import Path
from typing import Sequence

from fairseq_mega.data.card import CARD_FILE, is_recorded
from fairseq_mega.data.class_folders import walk_once
from fairseq_mega.data.text_units import tokens_of_file
from fairseq_mega.lab.prepare.archives import FETCH_AGAIN, naming_damage
from fairseq_mega.lab.prepare.dataset import Processed
from fairseq_mega.lab.prepare.download import fetch_missing
from fairseq_mega.lab.prepare.layouts import DATA_BIN
from fairseq_mega.lab.prepare.of_recipes import dataset_of, is_published
from fairseq_mega.lab.prepare.progress import print_line
from fairseq_mega.lab.recipes.recipe import Recipe, RecipeError

from .settings import PUBLISHED, Choices

HOST = "https://dl.fbaipublicfiles.com/mega/data"  # the READMEs of facebookresearch/mega, examples/mega


def processed_of(recipe: Recipe) -> Processed:
    """Return the published form of the data of a recipe; RecipeError where there is none."""
    processed = dataset_of(recipe).processed
    if processed is None or not is_published(recipe):
        raise RecipeError(f"--processed: the authors published no processed data for {recipe.name}: omit it")
    return processed


def fetch_processed(recipes: Sequence[Recipe], requested: str, folder: Path, choices: Choices) -> None:
    """Fetch and unpack the archives at the address in --processed, or the published ones that the recipes need.

    Args:
        folder: for a folder of each archive, which is beside it.

    Raises:
        RecipeError, DownloadError: if one cannot be obtained, or is damaged.
        OSError: if it cannot be unpacked.
    """
    published = dict.fromkeys(f"{HOST}/{processed_of(recipe).archive}" for recipe in recipes)
    for url in published if requested == PUBLISHED else [requested]:
        archive = folder.parent / url.rpartition("/")[2]
        if not (folder / archive.stem).is_dir():
            fetch_missing(url, archive, allowed=choices.download)
            unpack(archive, folder / archive.stem)


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
    """Return the one folder below ``top`` with the files of a recipe's data, a name of its data set and its contents.

    The names of folders in the archives are not published.

    Raises:
        RecipeError: if there is none, or several, with the reason for each folder that has the files.
    """
    processed = processed_of(recipe)
    files = [name.replace(f"{DATA_BIN}/", "") for name in dataset_of(recipe).layout.files]
    folders = [folder for folder in sorted(place for place, _, _ in walk_once(top)) if is_named(folder, top, recipe)]
    there = [folder for folder in folders if all((folder / name).is_file() for name in files)]
    found = {folder: problem_of(recipe, folder, processed) for folder in there}
    right = [folder for folder, problem in found.items() if not problem]
    if len(right) != 1:
        seen = [f"{folder} ({problem or 'right'})" for folder, problem in found.items()]
        raise RecipeError(
            f"--processed: {top} should have one folder of {recipe.dataset}, named "
            f"{' or '.join(processed.names)}, with {', '.join(files)}: found {', '.join(seen) or 'none'}"
        )
    return right[0]


def is_named(path: Path, top: Path, recipe: Recipe) -> bool:
    """Return whether a path below ``top`` has a name of a recipe's data set."""
    below = (top.name if path == top else str(path.relative_to(top))).lower()
    processed = dataset_of(recipe).processed
    return processed is not None and any(name in below for name in processed.names)


def problem_of(recipe: Recipe, folder: Path, processed: Processed) -> str:
    """Return what tells a folder from a recipe's processed data: its origin, vocabulary, labels or length; or ""."""
    if is_recorded(folder):
        return f"its {CARD_FILE} names the command that made it; such data go with --data"
    if (folder / "src1-bin").is_dir() and not any("src1-bin" in name for name in dataset_of(recipe).layout.files):
        return "it has a second text for each, src1-bin"
    model, texts = recipe.config["model"], (folder / "label-bin").is_dir()
    if not texts and not (folder / "input").is_dir():
        return ""
    file = "label-bin/dict.txt" if texts else "label/train.label"
    labels, classes = len(set(tokens_of_file(folder / file))), int(model["sentence_class_num"])
    if labels != classes:
        return f"{file} has {labels} labels, the task {classes}"
    if texts and processed.vocab_sizes is not None:
        least, most = processed.vocab_sizes
        found = len(tokens_of_file(folder / "src-bin" / "dict.txt"))
        return "" if least <= found <= most else f"src-bin/dict.txt has {found} tokens, {least} to {most} are expected"
    if not texts:
        with (folder / "input" / "train.src").open(encoding="ascii", errors="replace") as lines:
            if len(next(lines, "").split()) != model["max_positions"]:
                return f"the first line of input/train.src is not an image of {model['max_positions']} pixels"
    return ""
