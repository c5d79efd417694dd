"""All recipes of the package, and those that a name stands for."""

import difflib
from functools import lru_cache
from pathlib import Path
from typing import Dict, List, Sequence

from .recipe import FOLDER, Recipe, RecipeError, load


@lru_cache(maxsize=None)
def catalogue() -> Dict[str, Recipe]:
    """Every recipe of the package by its name, in the order of the names."""
    paths = sorted(path for path in FOLDER.rglob("*.yaml") if path.parent != FOLDER)
    return {recipe.name: recipe for recipe in map(load, paths)}


def find(name: str) -> List[Recipe]:
    """The recipes that a name stands for: one, those of a folder such as ``mega/table2`` or ``table2``, or a file.

    Raises:
        RecipeError: if there is none, naming the nearest.
    """
    known = catalogue()
    if name.endswith((".yaml", ".yml")):
        return [load(Path(name))]
    wanted = name.strip("/")
    found = [
        recipe
        for key, recipe in known.items()
        if key == wanted or f"/{key}/".find(f"/{wanted}/") >= 0  # whole names of folders, anywhere in the path
    ]
    if wanted and found:
        return found
    folders = {"/".join(key.split("/")[:depth]) for key in known for depth in (1, 2, 3)}
    near = difflib.get_close_matches(wanted, [*known, *sorted(folders)], 3, 0.3)
    hint = " or ".join(near) or ", ".join(sorted(folder for folder in folders if folder.count("/") == 1))
    raise RecipeError(f"the recipe or table {name!r} is unknown: give {hint} (--list names all)")


def find_all(names: Sequence[str]) -> List[Recipe]:
    """The recipes that several names stand for, each once; all that there are for no name.

    Raises:
        RecipeError: if a name stands for none.
    """
    found = {recipe.name: recipe for name in names for recipe in find(name)} if names else catalogue()
    return list(found.values())
