"""All recipes of the package, and their choice by names."""

from functools import lru_cache
from pathlib import Path
from typing import Dict, List, Sequence, Tuple

from .paper_values import without_recipe
from .recipe import ENDS, FOLDER, PARTS, PRESETS, Recipe, RecipeError, load

CLASSIFICATIONS = {  # tasks of MEGA's Tables 2 and 4 to their titles
    "listops": "ListOps",
    "text": "Text",
    "retrieval": "Retrieval",
    "image": "Image",
    "pathfinder": "Pathfinder",
    "pathx": "Path-X",
    "speech": "Speech",
}
ORDER = (  # of tasks and models in the paper's tables; others follow by their numbers and names
    *(*CLASSIFICATIONS, "wikitext103", "enwik8", "en-de", "de-en"),
    *("mega", "mega_chunk", "transformer", "s4d", "softmax", "mega_softmax", "mega_laplace"),
    *("megalodon", "megalodon_chunk"),
)


def place(path: Path) -> List[Tuple[int, int, str]]:
    """Key of a recipe's file for sorting."""
    parts = path.relative_to(FOLDER).with_suffix("").parts
    numbers = [int("0" + "".join(filter(str.isdigit, part))) for part in parts]
    return [
        (ORDER.index(part) if part in ORDER else len(ORDER), count, part.rstrip("0123456789"))
        for part, count in zip(parts, numbers)
    ]


@lru_cache(maxsize=None)
def catalogue() -> Dict[str, Recipe]:
    """Every recipe of the package by its name, in the order of the tables."""
    folders = [FOLDER, FOLDER / PARTS, FOLDER / PRESETS]
    paths = sorted((path for path in FOLDER.rglob("*.yaml") if path.parent not in folders), key=place)
    return {recipe.name: recipe for recipe in map(load, paths)}


def find(name: str) -> List[Recipe]:
    """Return the recipes of a name: one, those of a folder such as ``mega/table2`` or ``table2``, or a file.

    Raises:
        RecipeError: if there is none, naming the tables.
    """
    known = catalogue()
    if name.endswith(ENDS):
        return [load(Path(name))]
    requested = name.strip("/")
    found = [recipe for key, recipe in known.items() if is_within(requested, key)]
    if requested and found:
        return of_one_paper(found, requested)
    others = [key for key in without_recipe() if requested and is_within(requested, key)]
    if others:  # MEGA's come first
        raise RecipeError(f"{others[0]} has no recipe: {without_recipe()[others[0]].instead}")
    tables = dict.fromkeys("/".join(key.split("/")[:2]) for key in known)
    raise RecipeError(f"the recipe or table {name!r} is unknown: give one of {', '.join(tables)} (--list)")


def is_within(requested: str, name: str) -> bool:
    """Return whether a name holds a requested one: whole names of folders, anywhere in the path."""
    return name == requested or f"/{requested}/" in f"/{name}/"


def of_one_paper(recipes: List[Recipe], requested: str) -> List[Recipe]:
    """Return the recipes without MEGALODON's if MEGA's are among them, unless the name contains "megalodon"."""
    papers = {recipe.name.partition("/")[0] for recipe in recipes}
    if {"mega", "megalodon"} <= papers and "megalodon" not in requested:
        return [recipe for recipe in recipes if not recipe.name.startswith("megalodon/")]
    return recipes


def find_all(names: Sequence[str]) -> List[Recipe]:
    """Return the recipes of several names, each once; all recipes without a name.

    Raises:
        RecipeError: if a name has no recipe.
    """
    found = {recipe.name: recipe for name in names for recipe in find(name)} if names else catalogue()
    return list(found.values())


def facts(recipe: Recipe) -> Dict[str, str]:
    """Return the entries that choose a recipe: the last part of its name, and its cell."""
    return {"name": recipe.name.rpartition("/")[2], **{key: str(value) for key, value in recipe.cell.items()}}
