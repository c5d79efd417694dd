"""The data sets that recipes name, the settings that make their data, and their place in the reports."""

from argparse import Namespace
from typing import List

from fairseq_mega.lab.prepare.dataset import Dataset
from fairseq_mega.lab.prepare.registry import DATASETS, parse
from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.recipes.recipe import Recipe, RecipeError


def dataset_of(recipe: Recipe) -> Dataset:
    """Return the data set of fairseq-mega-prepare that makes the data of a recipe.

    Raises:
        RecipeError: if there is none.
    """
    if recipe.dataset not in DATASETS:
        raise RecipeError(f"{recipe.file}: 'data' is '{recipe.data}': begin with one of {', '.join(DATASETS)}")
    return DATASETS[recipe.dataset]


def settings_of(recipe: Recipe) -> Namespace:
    """Return the settings that make the data of a recipe.

    Raises:
        RecipeError: for options that the data set does not accept.
    """
    name = dataset_of(recipe).name
    try:
        return parse(name, recipe.data_options)
    except ValueError as error:
        raise RecipeError(f"{recipe.file}: 'data' is '{recipe.data}': {error}") from error


def is_published(recipe: Recipe) -> bool:
    """Return whether the data of a recipe are those that papers score: made without options."""
    return not recipe.own_data and settings_of(recipe) == parse(recipe.dataset, [])


def in_same_place(recipe: Recipe) -> List[Recipe]:
    """Return the recipes of the package whose number a report shows for the same data: their report and task are those
    of the recipe. The recipes of a report about one data set may have no task.
    """
    task = recipe.cell.get("task")
    return [
        other
        for other in catalogue().values()
        if other.report == recipe.report and other.cell.get("task") in (None, task)
    ]


def have_same_data(one: Recipe, other: Recipe) -> bool:
    """Return whether two recipes have the same data, whatever the words that describe them."""
    if (one.dataset, one.own_data, one.any_data) != (other.dataset, other.own_data, other.any_data):
        return False
    return one.data == other.data or settings_of(one) == settings_of(other)


def check_data(recipe: Recipe) -> None:
    """Check that the data of a recipe fit its task, its folder of data and its place in a report.

    Raises:
        RecipeError: naming the file and the entry.
    """
    settings_of(recipe)
    task, readers = recipe.config["task"]["_name"], dataset_of(recipe).layout.tasks
    if task not in readers:
        raise RecipeError(
            f"{recipe.file}: 'data' is '{recipe.data}', which the task {task} does not read: give other data, or "
            f"task._name {' or '.join(readers)}"
        )
    same = [other for other in catalogue().values() if not recipe.measured and other.place == recipe.place]
    shared = [(f"{recipe.place} is the folder", "task.data another folder", same)]
    shared.append(
        (f"{recipe.report} shows its number", "'cell' another task, or another 'report'", in_same_place(recipe))
    )
    for problem, remedy, others in shared:
        for other in others:
            if not have_same_data(recipe, other):
                raise RecipeError(
                    f"{recipe.file}: 'data' is {described(recipe)}, and {problem} for {described(other)}: give {remedy}"
                )


def described(recipe: Recipe) -> str:
    """Return the data of a recipe in words."""
    return f"'{recipe.data}'" + " of one's own" * recipe.own_data + " or any others" * recipe.any_data
