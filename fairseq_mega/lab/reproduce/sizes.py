"""The models of recipes on paper, see :mod:`fairseq_mega.models.cost`."""

import json
from functools import lru_cache

from torch import nn

from fairseq_mega.lab.prepare.language_modeling.published import CORPORA
from fairseq_mega.lab.recipes.recipe import Recipe
from fairseq_mega.models import cost, on_paper

BYTES = 264  # rows of a table of bytes: all 256, the special symbols, and what fills it up
SYMBOLS = {  # rows of a model's table of symbols, by the data set
    "wikitext-103": CORPORA["wikitext-103"].dictionary or 0,
    "wikitext-2": CORPORA["wikitext-2"].dictionary or 0,
    "enwik8": BYTES,
    "pg19": 32_000,
    "wmt16-en-de": 33_000,
    "libreoffice-help": 4000,
}


def model_of(recipe: Recipe) -> nn.Module:
    """The model of a recipe on the meta device."""
    symbols = recipe.evaluate["symbols"] if recipe.measured else SYMBOLS.get(recipe.data, BYTES)
    documents = 2 if recipe.cell.get("task") == "retrieval" else 1
    return _built(json.dumps(recipe.config["model"], sort_keys=True), symbols, documents)


@lru_cache(maxsize=None)  # a listing asks for each several times
def _built(options: str, symbols: int, documents: int) -> nn.Module:
    return on_paper.build(json.loads(options), symbols, documents)


def parameters(recipe: Recipe) -> int:
    """Number of parameters of a recipe's model; of classifiers of text, whose symbols are few, for all bytes."""
    return cost.parameters(model_of(recipe))
