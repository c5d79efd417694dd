"""Description of recipes for the help of a command."""

import os
import textwrap
from typing import Dict, List, Sequence, Tuple

from .catalogue import facts, find
from .recipe import Recipe, RecipeError

WIDTH, COLUMN = 116, 24  # of lines, and of their options


def named(words: Sequence[str]) -> Tuple[List[str], List[Recipe]]:
    """Return the words of a command line that name recipes, and the recipes."""
    tables, recipes = [], []
    for word in words:
        try:
            recipes += find(word)
            tables.append(word)
        except (RecipeError, OSError):
            pass  # another word
    return tables, recipes


def description(recipes: Sequence[Recipe]) -> str:
    """Return a line for each key of --where that distinguishes the recipes, with its values, and one for the seeds."""
    values: Dict[str, Dict[str, None]] = {}
    for recipe in recipes:
        for key, value in facts(recipe).items():
            values.setdefault(key, {})[value] = None
    lines = {f"--where {key}=LIST": ", ".join(found) for key, found in values.items() if len(found) > 1}
    lines["seeds"] = " or ".join(dict.fromkeys(",".join(map(str, recipe.seeds)) for recipe in recipes))
    return "\n".join(f"{option:{COLUMN}}{text}" for option, text in lines.items())


def notes(recipes: Sequence[Recipe]) -> str:
    """Return the notes of recipes, each once with its recipes."""
    folder = os.path.commonpath([recipe.name for recipe in recipes])
    owners: Dict[str, List[str]] = {}
    for recipe in recipes:
        owners.setdefault(recipe.notes, []).append(os.path.relpath(recipe.name, folder))
    texts = [
        note if len(names) == len(recipes) else f"{', '.join(names)}: {note}" for note, names in owners.items() if note
    ]
    fill = textwrap.TextWrapper(WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False).fill
    return "\n".join(["notes:", *map(fill, texts)]) if texts else ""
