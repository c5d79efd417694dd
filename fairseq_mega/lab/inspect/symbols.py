"""Numbers of symbols of the recipes' models, with special symbols and the padding of the table."""

from typing import Optional

from fairseq_mega.lab.prepare.language_modeling.published import CORPORA
from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.recipes.recipe import Recipe

BYTES = 264  # of bytes: all 256, the special symbols, and the padding of the table
SYMBOLS = {  # by the data set
    **{name: corpus.dictionary for name, corpus in CORPORA.items() if corpus.dictionary is not None},
    "pg19": 32_000,
    "wmt16-en-de": 33_000,
    "libreoffice-help": 4000,
}


def symbols_of(recipe: Recipe) -> int:
    """Return the number of symbols of a recipe's model."""
    return int(recipe.evaluate["symbols"]) if recipe.measured else SYMBOLS.get(recipe.data, BYTES)


def symbols_of_preset(name: str) -> Optional[int]:
    """Return the number of symbols that the recipes of an architecture agree on, or None."""
    found = {symbols_of(recipe) for recipe in catalogue().values() if recipe.preset == name}
    return found.pop() if len(found) == 1 else None
