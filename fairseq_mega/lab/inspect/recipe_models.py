"""The models of recipes on paper, see :mod:`fairseq_mega.models.cost`, and the sizes of their vocabularies."""

from typing import Optional

from torch import nn

from fairseq_mega.lab.prepare.of_recipes import dataset_of, settings_of
from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.recipes.recipe import Recipe
from fairseq_mega.models import on_paper

BYTES = 264  # of bytes: all 256, the special tokens, and the padding of the table


def vocab_size_of(recipe: Recipe) -> int:
    """Return the size of the vocabulary of a recipe's model, with special tokens and the padding of the table."""
    if recipe.measured:
        return int(recipe.evaluate["symbols"])
    return dataset_of(recipe).vocab_size(settings_of(recipe)) or BYTES


def vocab_size_of_preset(name: str) -> Optional[int]:
    """Return the size of the vocabulary that the recipes of an architecture agree on, or None."""
    found = {vocab_size_of(recipe) for recipe in catalogue().values() if recipe.preset == name}
    return found.pop() if len(found) == 1 else None


def model_of(recipe: Recipe) -> nn.Module:
    """Return the model of a recipe on the meta device."""
    documents = 2 if recipe.cell.get("task") == "retrieval" else 1
    return on_paper.built(recipe.config["model"], vocab_size_of(recipe), documents)
