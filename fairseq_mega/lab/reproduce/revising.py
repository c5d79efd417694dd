"""Recipes that a command narrows down or revises: by task, model, attention function, dimensions, chunk."""

import copy
from dataclasses import replace
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence

from fairseq_mega.lab.recipes.recipe import Recipe, RecipeError
from fairseq_mega.lab.runs.options import whole_number

IN_CELL = {  # parts of a cell that options of the model stand for
    "encoder_chunk_size": "chunk",
    "encoder_n_dim": "ema_dim",
    "attention_activation_fn": "attention",
}
ALL = ("all", "both")


def names(option: str, text: str) -> List[str]:
    """Names separated by commas.

    Raises:
        RecipeError: if one is empty.
    """
    found = text.split(",")
    if not all(found):
        raise RecipeError(f"{option} is '{text}': names separated by commas are needed")
    return found


def whole_numbers(option: str, text: str, least: int = 0, full: bool = False) -> List[int]:
    """Whole numbers separated by commas.

    Args:
        least: the smallest that may be given.
        full: whether -1, full attention, may be given, too.

    Raises:
        RecipeError: for anything else.
    """
    found = []
    for word in text.split(","):
        number = -1 if full and word == "-1" else whole_number(word, least)
        if number is None:
            raise RecipeError(f"{option} is '{text}': whole numbers separated by commas are needed, for instance 1,16")
        found.append(number)
    return found


def stem(recipe: Recipe) -> str:
    """The model of a recipe as options name it: the last part of its name."""
    return recipe.name.rpartition("/")[2].replace("_", "-")


def choose(recipes: Sequence[Recipe], option: str, text: Optional[str], key: Callable[[Recipe], Any]) -> List[Recipe]:
    """The recipes of which one of the names is the key; all of them without names, and for all (both).

    Raises:
        RecipeError: if a name is no recipe's key.
    """
    if text is None:
        return list(recipes)
    known = list(dict.fromkeys(str(key(recipe)) for recipe in recipes))
    wanted = names(option, text)
    for name in wanted:
        if name not in (*known, *ALL):
            raise RecipeError(f"{option} is '{name}': choose from {', '.join([*known, 'all'])}")
    return [recipe for recipe in recipes if {str(key(recipe)), *ALL} & set(wanted)]


def revise(recipe: Recipe, values: Dict[str, Any]) -> Recipe:
    """A recipe with other values of "group.option", where it has these options; its cell says so, too.

    Raises:
        RecipeError: if a chunk does not divide the inputs.
    """
    config, cell = copy.deepcopy(recipe.config), dict(recipe.cell)
    for key, value in values.items():
        group, option = key.split(".")
        if option not in config[group]:
            continue
        config[group][option] = value
        if group == "model" and IN_CELL.get(option) in cell:
            cell[IN_CELL[option]] = value
        if option == "encoder_chunk_size":
            check_chunk(recipe, value)
        if option == "sc_scaling" and value != "twice":
            cell["scaling"] = value
    return replace(recipe, config=config, cell=cell)


def at_each_rate(recipe: Recipe) -> List[Recipe]:
    """The recipe at each of its learning rates, which its cell then names; the recipe itself where it has one only."""
    found = [revise(recipe, {"optimization.lr": [rate]}) for rate in recipe.rates]
    return [replace(one, cell={**one.cell, "lr": rate}) for one, rate in zip(found, recipe.rates)] or [recipe]


def check_chunk(recipe: Recipe, chunk: int) -> None:
    """Raise a RecipeError unless inputs of fixed length can be cut into whole chunks."""
    model = recipe.config["model"]
    if model.get("input_type") == "image" and chunk > 0 and model["max_positions"] % chunk:
        task = recipe.cell["task"]
        raise RecipeError(
            f"--chunk is {chunk}, which does not divide the {model['max_positions']} positions of --task {task}: give "
            "a divisor, or -1 for full attention"
        )


def with_each(recipes: Sequence[Recipe], base: str, option: str, values: Iterable[Any]) -> List[Recipe]:
    """Recipes that vary one option: those there are, and for other values the revised base, task by task.

    Args:
        base: stem of the recipe that is revised.
        option: of the model.
    """
    found = []
    for task in dict.fromkeys(recipe.cell["task"] for recipe in recipes):
        family = [recipe for recipe in recipes if recipe.cell["task"] == task]
        start = next(recipe for recipe in family if stem(recipe) == base)
        found += [revise(start, {f"model.{option}": value}) for value in values]
    return found
