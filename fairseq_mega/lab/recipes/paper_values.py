"""The paper's values, from the recipes, and from a file those of numbers without a recipe."""

from functools import lru_cache
from typing import Dict, List, NamedTuple, Sequence

import yaml

from .recipe import FOLDER, load


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


def row_title(name: str, trained: bool, values_from: str = "") -> str:
    """Return the title of a published row, of a model that a recipe trains or of one that is only quoted.

    Args:
        values_from: see Recipe.
    """
    return f"{name}, {(values_from or 'paper') if trained else 'quoted'}"


def paper_values(
    report: str, name: str, parts: Sequence[str], metric: str = "test_accuracy", paper: str = "mega"
) -> List[str]:
    """The published values of the recipes of one name in some folders of a table; "fails" where there is no recipe."""
    found = []
    for part in parts:
        path = FOLDER / paper / report / part / f"{name}.yaml"
        found.append(f"{load(path).paper[metric]:.2f}" if path.exists() else "fails")
    return found
