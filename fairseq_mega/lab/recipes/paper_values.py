"""Numbers of the papers that no recipe trains, with their values, from a file."""

from functools import lru_cache
from typing import Dict, NamedTuple

import yaml

from .recipe import FOLDER


class WithoutRecipe(NamedTuple):
    """A number of a paper that no recipe trains."""

    reason: str  # for a list
    instead: str  # what to run in its place, for the error
    paper: Dict[str, float] = {}  # metrics or tasks to the paper's values
    peers: Dict[str, Dict[str, float]] = {}  # other models in the paper's table to their values


@lru_cache(maxsize=None)
def without_recipe() -> Dict[str, WithoutRecipe]:
    """Return the numbers that no recipe trains, by names like those of recipes."""
    found = yaml.safe_load((FOLDER / "without_recipe.yaml").read_text(encoding="utf-8"))
    return {name: WithoutRecipe(**about) for name, about in found.items()}
