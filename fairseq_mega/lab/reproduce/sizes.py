"""The models of recipes on paper, see :mod:`fairseq_mega.models.cost`."""

from torch import nn

from fairseq_mega.lab.inspect.symbols import symbols_of
from fairseq_mega.lab.recipes.recipe import Recipe
from fairseq_mega.models import cost, on_paper


def model_of(recipe: Recipe) -> nn.Module:
    """The model of a recipe on the meta device."""
    documents = 2 if recipe.cell.get("task") == "retrieval" else 1
    return on_paper.built(recipe.config["model"], symbols_of(recipe), documents)


def parameters(recipe: Recipe) -> int:
    """Number of parameters of a recipe's model; of classifiers of text, whose symbols are few, for all bytes."""
    return cost.parameters(model_of(recipe))
