"""Numbers of symbols of the recipes' models, with special symbols and the padding of the table."""

from typing import Optional

from fairseq_mega.lab.prepare.of_recipes import dataset_of, settings_of
from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.recipes.recipe import Recipe

BYTES = 264  # of bytes: all 256, the special symbols, and the padding of the table


def symbols_of(recipe: Recipe) -> int:
    """Return the number of symbols of a recipe's model."""
    if recipe.measured:
        return int(recipe.evaluate["symbols"])
    return dataset_of(recipe).symbols(settings_of(recipe)) or BYTES


def symbols_of_preset(name: str) -> Optional[int]:
    """Return the number of symbols that the recipes of an architecture agree on, or None."""
    found = {symbols_of(recipe) for recipe in catalogue().values() if recipe.preset == name}
    return found.pop() if len(found) == 1 else None
