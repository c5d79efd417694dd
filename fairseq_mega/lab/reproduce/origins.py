"""The origin of existing data by the record of fairseq-mega-prepare: data of a recipe, and others."""

from pathlib import Path
from typing import Any, Dict, List

from fairseq_mega.data.card import record_of
from fairseq_mega.lab.prepare.making import settings_of
from fairseq_mega.lab.prepare.of_recipes import dataset_of
from fairseq_mega.lab.prepare.registry import DATASETS, parse
from fairseq_mega.lab.recipes.recipe import Recipe, RecipeError

from .choices import Choices
from .datasets import PREPARE, command, is_released
from .runs import Run

FREE = {"dataset", "seed", "released"}  # data of other seeds and of the archive are a recipe's, too


def is_generated(folder: Path) -> bool:
    """Return whether the data of a folder were generated, by its record."""
    return str(source_of(folder).get("origin", "")).startswith("generated")


def data_of(run: Run, choices: Choices) -> str:
    """Return the origin of a run's data for its result: generated, released, own, random, invented for a smoke run, or
    unknown where fairseq-mega-prepare did not make them.
    """
    if run.smoke:
        return "invented"
    if run.recipe.measured:
        return "random tokens"
    if choices.processed is not None:
        return "released, processed by the authors"
    source = source_of(run.data)
    dataset = DATASETS.get(source.get("dataset", ""))
    if is_generated(run.data):
        return "generated"
    if dataset is not None and dataset.own:
        return "own"
    return "released" if source.get("origin") else "of unknown origin"


def source_of(folder: Path) -> Dict[str, Any]:
    """Return the record of fairseq-mega-prepare on the data in a folder; empty where there is none.

    Raises:
        RecipeError: if the note is damaged.
    """
    try:
        return record_of(folder.parent if folder.name == "data-bin" else folder)
    except ValueError as error:
        raise RecipeError(str(error)) from error


def check_origin(recipe: Recipe, folder: Path, choices: Choices) -> None:
    """Raise a RecipeError if a folder has other data than a run requires: of another set, invented or smaller ones.

    Recipes with the user's data, and those that compare models on any data, accept other data sets.
    """
    settings = source_of(folder).get("settings")
    settings = settings if isinstance(settings, dict) else {}
    if not choices.smoke and settings.get("smoke"):
        raise RecipeError(f"{folder} holds invented data of --smoke: give another folder, remove it, or add --smoke")
    if is_released(recipe, choices) and is_generated(folder):
        raise RecipeError(f"{folder} holds generated data: give another folder, or omit --released")
    named, wanted = settings.get("dataset"), dataset_of(recipe).name
    if named not in (None, wanted) and not (recipe.own_data or recipe.any_data):
        raise RecipeError(
            f"{folder} holds data of fairseq-mega-prepare {named}, and {recipe.name} is about {wanted}: give another "
            "folder, or train on these by the line that --print shows"
        )
    other = [] if choices.smoke else other_settings(recipe, settings, folder, choices)
    if other:
        raise RecipeError(
            f"{folder} holds other data than the recipe's, made with {', '.join(other)}: give another folder, in which "
            "the recipe's are made, or train on these by the line that --print shows"
        )


def other_settings(recipe: Recipe, settings: Dict[str, Any], folder: Path, choices: Choices) -> List[str]:
    """List the options that data were made with and that are not those of a recipe's data set; not the raw files, and
    not those that a result records among the options of its task.
    """
    dataset, words = dataset_of(recipe), command(recipe, folder, choices)[len(PREPARE) + 1 :]
    if recipe.own_data or settings.get("dataset") != dataset.name:
        return []
    wanted = settings_of(dataset, parse(dataset.name, words))
    free = FREE | {option.lstrip("-").replace("-", "_") for option in dataset.task_options}
    return [
        f"--{key.replace('_', '-')} {value} in place of {wanted.get(key, 'none')}"
        for key, value in sorted(settings.items())
        if key not in free and not is_input(value) and value != wanted.get(key)
    ]


def is_input(value: Any) -> bool:
    """Return whether a setting is about source files of the data."""
    return any(isinstance(entry, dict) for entry in (value if isinstance(value, list) else [value]))
