"""Recipes that a command chooses by ``--where`` and changes by ``--set``."""

import copy
import re
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, Dict, List, NamedTuple, NoReturn, Sequence, Tuple

import torch
import yaml

from fairseq_mega.lab.inspect.recipe_models import model_of
from fairseq_mega.lab.prepare.of_recipes import dataset_of
from fairseq_mega.lab.recipes.catalogue import facts
from fairseq_mega.lab.recipes.command_line import arguments, without_user_dir
from fairseq_mega.lab.recipes.recipe import GROUPS, IN_CELL, Recipe, RecipeError, shown
from fairseq_mega.lab.runs.options import whole_number

EVALUATE = "evaluate"  # group of --set for entries of a recipe's evaluation
OF_RUNS = {"common.seed": "--seeds", "common.cpu": "--gpus 0", "task.data": "--data", "checkpoint.save_dir": "--out"}
SETTING = re.compile(r"(?:(?P<scope>[^:=]+):)?(?P<group>[a-z_]+)\.(?P<option>\w+)=(?P<text>.+)", re.DOTALL)


class Setting(NamedTuple):
    """A value that replaces the one in recipes.

    Attributes:
        scope: part of a recipe's name, or a pattern of it, or "*" for all recipes.
        group: of fairseq's configuration, or EVALUATE.
        option: which the recipe has.
        text: of the value.
    """

    scope: str
    group: str
    option: str
    text: str

    @property
    def key(self) -> str:
        """The group and the option."""
        return f"{self.group}.{self.option}"

    def __str__(self) -> str:
        return f"--set {'' if self.scope == '*' else self.scope + ':'}{self.key}={self.text}"

    def options_of(self, recipe: Recipe) -> Dict[str, Any]:
        """The options of a recipe that the group has."""
        return recipe.evaluate if self.group == EVALUATE else recipe.config[self.group]

    def changes(self, recipe: Recipe) -> bool:
        """Return whether the setting applies to a recipe, which has the option."""
        named = fnmatchcase(f"/{recipe.name}/", f"*/{self.scope}/*")
        return named and self.option not in ("_name", "kind") and self.option in self.options_of(recipe)

    def is_told(self, recipe: Recipe) -> bool:
        """Return whether the cell of a changed recipe shows the setting."""
        return self.group == "model" and IN_CELL.get(self.option) in recipe.cell


def parse_setting(text: str) -> Setting:
    """Read the value of ``--set``.

    Raises:
        RecipeError: for anything else, an unknown group, or a setting with an option of its own.
    """
    found = SETTING.fullmatch(text)
    if found is None:
        raise RecipeError(
            f"--set '{text}': write it as group.option=value, for instance optimization.lr=0.001, with NAME: in front "
            f"for the recipes of that name only"
        )
    setting = Setting(found["scope"] or "*", found["group"], found["option"], found["text"])
    if setting.group not in (*GROUPS, EVALUATE):
        raise RecipeError(
            f"{setting}: the group '{setting.group}' is unknown: choose from {', '.join(GROUPS)}, evaluate"
        )
    if setting.key in OF_RUNS:
        raise RecipeError(f"{setting}: give {OF_RUNS[setting.key]} instead")
    return setting


def converted(setting: Setting, recipe: Recipe) -> Any:
    """Return the value of a setting in the type of the recipe's own value.

    Raises:
        RecipeError: if it is of another type.
    """
    present = setting.options_of(recipe)[setting.option]
    try:
        return of_type(setting.text, present)
    except (KeyError, TypeError, ValueError, AttributeError, yaml.YAMLError) as error:
        raise RecipeError(f"{setting}: {recipe.name} has {present!r} here; give another value of this form") from error


def of_type(text: str, present: Any) -> Any:
    """Read a text as a value of the type of another one; a list may be given as its only element.

    Raises:
        KeyError, TypeError, ValueError, AttributeError, yaml.YAMLError: if it is of another type.
    """
    if isinstance(present, bool):
        return {"true": True, "false": False}[text.lower()]
    if isinstance(present, (int, float)):
        return type(present)(text)
    if not isinstance(present, list):
        return text
    found = yaml.safe_load(text)
    elements = found if isinstance(found, list) else [found]
    if not elements or any(isinstance(element, dict) and not all(element.values()) for element in elements):
        raise ValueError("a list without values")
    if isinstance(present[0], dict):  # names to lists of whole numbers
        return [{key: [int(one) for one in values] for key, values in element.items()} for element in elements]
    return [of_type(str(element), present[0]) for element in elements]


def whole_numbers(option: str, text: str) -> List[int]:
    """Whole numbers separated by commas, each once.

    Raises:
        RecipeError: for anything else.
    """
    found = []
    for word in text.split(","):
        number = whole_number(word, 0)
        if number is None:
            raise RecipeError(f"{option} is '{text}': whole numbers separated by commas are needed, for instance 1,11")
        if number in found:
            raise RecipeError(f"{option} is '{text}': {number} is there twice; give each number once")
        found.append(number)
    return found


def choose(recipes: Sequence[Recipe], text: str) -> List[Recipe]:
    """The recipes that ``--where KEY=VALUE,VALUE`` chooses.

    Raises:
        RecipeError: if no recipe has the key, or one of the values.
    """
    key, _, values = text.partition("=")
    wanted = values.split(",")
    if not key or not all(wanted):
        raise RecipeError(f"--where '{text}': write it as KEY=VALUE or KEY=VALUE,VALUE, for instance task=text,image")
    told = [facts(recipe) for recipe in recipes]
    known = list(dict.fromkeys(found[key] for found in told if key in found))
    if not known:
        keys = dict.fromkeys(name for found in told for name in found)
        raise RecipeError(f"--where {text}: no recipe has the key '{key}': choose from {', '.join(keys)}")
    for value in wanted:
        if value not in known:
            raise RecipeError(f"--where {text}: no recipe has the {key} '{value}': choose from {', '.join(known)}")
    return [recipe for recipe, found in zip(recipes, told) if found.get(key) in wanted]


def revise_all(recipes: Sequence[Recipe], settings: Sequence[Setting]) -> List[Recipe]:
    """The recipes with all settings.

    Raises:
        RecipeError: if a setting changes none of the recipes, or does not suit one.
    """
    for setting in settings:
        if not any(map(setting.changes, recipes)):
            raise RecipeError(
                f"{setting} changes none of the recipes that are chosen: --yaml shows the options that they have; "
                "options of fairseq-train alone are given after --"
            )
    return [revise(recipe, settings) for recipe in recipes]


def revise(recipe: Recipe, settings: Sequence[Setting]) -> Recipe:
    """Return a recipe with the settings that change it, in its cell, too.

    Raises:
        RecipeError: if a value has another type than the recipe's, or a chunk does not divide the inputs.
    """
    for setting in settings:
        if setting.changes(recipe):
            recipe = with_value(recipe, setting, converted(setting, recipe))
    return recipe


def with_value(recipe: Recipe, setting: Setting, value: Any) -> Recipe:
    """Return a recipe with another value of an option; learning rates replace all of the recipe's."""
    if setting.group == EVALUATE:
        return replace(recipe, evaluate={**recipe.evaluate, setting.option: value})
    config, rates = copy.deepcopy(recipe.config), recipe.rates
    if setting.key == "optimization.lr" and rates:
        rates, value = value, value[:1]
    config[setting.group][setting.option] = value
    cell = shown(recipe.cell, config["model"])
    if setting.key == "model.encoder_chunk_size":
        check_chunk(recipe, value)
    for option, key in dataset_of(recipe).task_options.items():  # the data are others then
        if setting.key == f"task.{key}" and value != recipe.config["task"][key]:
            cell[option.lstrip("-")] = value
    return replace(recipe, config=config, cell=cell, rates=rates)


def at_each_rate(recipe: Recipe) -> List[Recipe]:
    """The recipe at each of its learning rates, which its cell then names; the recipe itself where it has one only."""
    found = []
    for rate in recipe.rates:
        config = {**recipe.config, "optimization": {**recipe.config["optimization"], "lr": [rate]}}
        found.append(replace(recipe, config=config, cell={**recipe.cell, "lr": rate}))
    return found or [recipe]


def check_chunk(recipe: Recipe, chunk: int) -> None:
    """Raise a RecipeError unless inputs of fixed length can be cut into whole chunks."""
    model = recipe.config["model"]
    if model.get("input_type") == "image" and chunk > 0 and model["max_positions"] % chunk:
        raise RecipeError(
            f"model.encoder_chunk_size is {chunk}, which does not divide the {model['max_positions']} positions of "
            f"{recipe.name}: give a divisor, or -1 for full attention"
        )


def check_by_fairseq(recipe: Recipe) -> None:
    """Raise a RecipeError unless a training could begin by a recipe with the options of a run: fairseq accepts them,
    and the model and the schedule can be built from them.
    """
    what = f"{recipe.name}, with options given as --set GROUP.OPTION=VALUE (--yaml lists them)"
    _, given = parse_by_fairseq(arguments(recipe.config, recipe.preset), what)
    try:
        model_of(recipe)
        build_schedule(given)
    except (ValueError, AssertionError, ArithmeticError, LookupError, TypeError) as error:  # of fairseq
        raise RecipeError(f"{what}: {error}") from error


def parse_by_fairseq(line: Sequence[str], what: str) -> Tuple[ArgumentParser, Namespace]:
    """Parse a command line of fairseq-train; returns its parser, too.

    Raises:
        RecipeError: with ``what`` and fairseq's message.
    """
    from fairseq import options  # a slow import

    import fairseq_mega  # noqa: F401

    parser = options.get_training_parser()

    def refuse(message: str) -> NoReturn:
        raise RecipeError(f"{what}: {message}")

    parser.error = refuse
    return parser, options.parse_args_and_arch(parser, without_user_dir(line))


def build_schedule(options: Namespace) -> None:
    """Build the schedule of a training, as options of fairseq-train describe it; raises ValueError."""
    from fairseq import optim
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf
    from fairseq.optim import lr_scheduler

    plain = Namespace(optimizer="sgd", lr=options.lr, momentum=0.0, weight_decay=0.0)  # of whose rates it is
    optimizer = optim.build_optimizer(plain, [torch.nn.Parameter(torch.zeros(1))])
    lr_scheduler.build_lr_scheduler(convert_namespace_to_omegaconf(options).lr_scheduler, optimizer)
