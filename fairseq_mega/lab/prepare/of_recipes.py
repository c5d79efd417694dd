"""The data sets that recipes name, and the settings that make their data."""

from argparse import Namespace

from fairseq_mega.lab.prepare.dataset import Dataset
from fairseq_mega.lab.prepare.registry import DATASETS, parse
from fairseq_mega.lab.recipes.recipe import Recipe, RecipeError


def dataset_of(recipe: Recipe) -> Dataset:
    """Return the data set of fairseq-mega-prepare that makes the data of a recipe.

    Raises:
        RecipeError: if there is none.
    """
    if recipe.dataset not in DATASETS:
        raise RecipeError(f"{recipe.name}: 'data' is '{recipe.data}': begin with one of {', '.join(DATASETS)}")
    return DATASETS[recipe.dataset]


def settings_of(recipe: Recipe) -> Namespace:
    """Return the settings that make the data of a recipe.

    Raises:
        RecipeError: for options that the data set does not accept.
    """
    try:
        return parse(dataset_of(recipe).name, recipe.data_options)
    except ValueError as error:
        raise RecipeError(f"{recipe.name}: 'data' is '{recipe.data}': {error}") from error


def is_published(recipe: Recipe) -> bool:
    """Return whether the data of a recipe are those that papers score: made without options."""
    return not recipe.own_data and settings_of(recipe) == parse(recipe.dataset, [])
