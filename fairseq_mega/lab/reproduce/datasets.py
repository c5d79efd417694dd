"""The data of recipes: the commands that make them, whether they are there, and whether they can be made."""

from dataclasses import replace
from pathlib import Path
from typing import List, Optional

from fairseq_mega.data.text_units import symbols_of_file
from fairseq_mega.lab.prepare.dataset import Scored, Sources
from fairseq_mega.lab.prepare.layouts import DATA_BIN
from fairseq_mega.lab.prepare.of_recipes import dataset_of, is_published
from fairseq_mega.lab.prepare.registry import options_of
from fairseq_mega.lab.recipes.recipe import Recipe, RecipeError
from fairseq_mega.lab.runs.commands import PYTHON

from .choices import Choices

PREPARE = [*PYTHON, "fairseq_mega.lab.prepare"]


def is_released(recipe: Recipe, choices: Choices) -> bool:
    """Return whether the data of a recipe are read from the archive of the Long Range Arena."""
    return choices.released and not choices.smoke and dataset_of(recipe).released is not None and is_published(recipe)


def scored_of(recipe: Recipe) -> Optional[Scored]:
    """Return the size of the part of a recipe's data that papers score; None where there is none."""
    return dataset_of(recipe).scored if is_published(recipe) else None


def usual_folder(recipe: Recipe, choices: Choices) -> Path:
    """Return the folder of the data in the recipe; generated and released data do not share one."""
    read = Path(recipe.place)
    top = read.parent if read.name == DATA_BIN else read
    released = dataset_of(recipe).generated and is_released(recipe, choices)
    return top.with_name(f"{top.name}-released") if released else top


def name_beside_others(recipe: Recipe, choices: Choices) -> str:
    """Return the name of the data's folder in a folder of all data.

    Another form of a data set may lie beside the published one: its name has those of the folders above it.
    """
    usual = usual_folder(recipe, choices)
    return usual.name if is_published(recipe) else "-".join(usual.parts[1:]) or usual.name


def sources_of(recipe: Recipe, folder: Path, choices: Choices) -> Sources:
    """Return the sources of the data of a recipe; their archives lie beside the folder of the data by default."""
    released = is_released(recipe, choices)
    beside = released or options_of(recipe.dataset).required.get("--archives", False)
    archives = choices.archives or (folder.parent / "archives" if beside else None)
    return Sources(archives, choices.download, released)


def command(recipe: Recipe, folder: Path, choices: Choices) -> List[str]:
    """Return the command that makes the data of a recipe in a folder; the same one continues an interrupted one."""
    dataset, task = dataset_of(recipe), recipe.config["task"]
    words = [*PREPARE, dataset.name, "--out", str(folder), *recipe.data_options]
    for option, key in dataset.task_options.items():
        words += [option, str(task[key])] if key in task else []
    if "--workers" in options_of(dataset.name).required:
        words += ["--workers", str(choices.workers)]
    return [*words, *(["--smoke"] if choices.smoke else source_options(recipe, folder, choices))]


def source_options(recipe: Recipe, folder: Path, choices: Choices) -> List[str]:
    """Return the options that choose the sources of data."""
    sources, known = sources_of(recipe, folder, choices), options_of(recipe.dataset).required
    if dataset_of(recipe).released is not None and not sources.released:  # generated, or from tables
        return []
    words = [["--released"]] * sources.released
    words += [] if sources.archives is None else [["--archives", str(sources.archives)]]
    words += [] if sources.download else [["--no-download"]]
    return [word for option, *values in words if option in known for word in (option, *values)]


def is_there(recipe: Recipe, folder: Path) -> bool:
    """Return whether a folder has the data of a recipe."""
    return dataset_of(recipe).layout.is_there(folder)


def check(recipe: Recipe, folder: Path, choices: Choices) -> None:
    """Check data that are still to be made.

    Raises:
        RecipeError: where the folder has a part of them, or they cannot be made.
    """
    dataset = dataset_of(recipe)
    if folder.exists() and not folder.is_dir():
        raise RecipeError(f"the data of {dataset.name} cannot be made in {folder}, a file: remove it, or give --data")
    if choices.smoke and dataset.toy is None:
        raise RecipeError(f"{recipe.name}: fairseq-mega-prepare {dataset.name} makes up no data: omit --smoke")
    if recipe.own_data and not choices.smoke:
        raise RecipeError(
            f"{folder} holds no complete data: give yours with --data, or run fairseq-mega-prepare {dataset.name} "
            f"--out {folder}"
        )
    try:
        dataset.layout.check_no_part(folder, dataset.name)
        dataset.check_packages()
        if not choices.smoke:
            check_sources(recipe, folder, choices)
    except ValueError as error:
        raise RecipeError(str(error)) from error


def check_sources(recipe: Recipe, folder: Path, choices: Choices) -> None:
    """Raise ValueError where the sources of data are neither there nor may be fetched."""
    dataset, sources = dataset_of(recipe), sources_of(recipe, folder, choices)
    if dataset.released is not None and sources.released and sources.archives is not None:
        dataset.released.check(sources.archives, sources.download)
    dataset.check_sources(folder, sources)


def fit(recipe: Recipe, folder: Path) -> Recipe:
    """Return a recipe with the number of classes of a user's data, texts or images; others are left as they are."""
    if not recipe.own_data:
        return recipe
    images, texts = folder / "label" / "train.label", folder / "label-bin" / "dict.txt"
    classes = len(set(symbols_of_file(images if images.exists() else texts)))
    model = {**recipe.config["model"], "sentence_class_num": classes}
    return replace(recipe, config={**recipe.config, "model": model})
