"""Settings of a user that differ from the recipes: ``--where``, ``--set``, options after ``--``, and all others."""

import copy
import re
from argparse import Namespace
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, NoReturn, Optional, Sequence, Tuple

import yaml

from fairseq_mega.lab.recipes.catalogue import facts
from fairseq_mega.lab.recipes.command_line import arguments, flag_of, without_user_dir
from fairseq_mega.lab.recipes.recipe import AUTO, GROUPS, IN_CELL, Recipe, RecipeError, shown

EVALUATE = "evaluate"  # group of --set for entries of a recipe's evaluation
OF_RUNS = {"common.seed": "--seeds", "common.cpu": "--gpus 0", "task.data": "--data", "checkpoint.save_dir": "--out"}
TRAINING = ("model", "task", "criterion", "optimizer", "optimization", "lr_scheduler")  # groups of a training's options
SETTING = re.compile(r"(?P<group>[a-z_]+)\.(?P<option>\w+)=(?P<text>.+)", re.DOTALL)
OF_RUNNING = re.compile(  # options that change no number but those of time and memory
    "--(num-workers|data-buffer-size|batch-size-valid|max-tokens-valid|disable-validation|"
    "validate-.*|log-.*|tensorboard-logdir|wandb-project|azureml-logging|aim-.*|no-progress-bar|profile|"
    "save-interval.*|keep-.*|no-save.*|no-epoch-checkpoints|no-last-checkpoints|write-checkpoints-asynchronously|"
    "empty-cache-freq|checkpoint-activations|offload-activations|distributed-.*|ddp-.*|bucket-cap-mb"
    ")"
)
NUMBER = re.compile(r"-\.?\d")


class Setting(NamedTuple):
    """A value that replaces the one in recipes."""

    group: str  # of fairseq's configuration, or EVALUATE
    option: str  # which the recipe has
    text: str  # of the value

    @property
    def key(self) -> str:
        """The group and the option."""
        return f"{self.group}.{self.option}"

    def __str__(self) -> str:
        return f"--set {self.key}={self.text}"

    def options_of(self, recipe: Recipe) -> Dict[str, Any]:
        """The options of a recipe that the group has."""
        return recipe.evaluate if self.group == EVALUATE else recipe.config[self.group]

    def changes(self, recipe: Recipe) -> bool:
        """Return whether the setting applies to a recipe, which has the option."""
        return self.option not in ("_name", "kind") and self.option in self.options_of(recipe)

    def shows(self, recipe: Recipe) -> bool:
        """Return whether the cell of a changed recipe shows the setting."""
        return self.group == "model" and IN_CELL.get(self.option) in recipe.cell


def parse_setting(text: str) -> Setting:
    """Read the value of ``--set``.

    Raises:
        RecipeError: for anything else, an unknown group, or a setting with an option of its own.
    """
    found = SETTING.fullmatch(text)
    if found is None or found["group"] not in (*GROUPS, EVALUATE):
        raise RecipeError(
            f"--set '{text}': write it as GROUP.OPTION=VALUE, for instance optimization.lr=0.001, with a group "
            f"of {', '.join(GROUPS)}, {EVALUATE}"
        )
    setting = Setting(**found.groupdict())
    if setting.key in OF_RUNS:
        raise RecipeError(f"{setting}: give {OF_RUNS[setting.key]} instead")
    return setting


def of_type(text: str, present: Any) -> Any:
    """Read a text as a value of the type of another one; a list may be passed as its only element."""
    if isinstance(present, bool):
        return {"true": True, "false": False}[text.lower()]
    if isinstance(present, (int, float)):
        return type(present)(text)
    if not isinstance(present, list):
        return text
    found = yaml.safe_load(text)
    elements = found if isinstance(found, list) else [found]
    if isinstance(present[0], dict):  # names to lists of whole numbers
        return [{key: [int(one) for one in values] for key, values in element.items()} for element in elements]
    return [of_type(str(element), present[0]) for element in elements]


def choose(recipes: Sequence[Recipe], text: str) -> List[Recipe]:
    """Return the recipes that ``--where KEY=VALUE,VALUE`` chooses.

    Raises:
        RecipeError: if there is none.
    """
    key, _, values = text.partition("=")
    chosen = [recipe for recipe in recipes if facts(recipe).get(key) in values.split(",")]
    if not chosen:
        known = dict.fromkeys(f"{name}={value}" for recipe in recipes for name, value in facts(recipe).items())
        raise RecipeError(f"--where {text} chooses no recipe: write KEY=VALUE,VALUE, of {', '.join(known)}")
    return chosen


def revise_all(recipes: Sequence[Recipe], settings: Sequence[Setting]) -> List[Recipe]:
    """Return the recipes with all settings.

    Raises:
        RecipeError: if a setting changes none of the recipes, or is of another type than the value of one.
    """
    for setting in settings:
        if not any(map(setting.changes, recipes)):
            raise RecipeError(
                f"{setting} changes none of the recipes that are chosen: --yaml shows the options that they have; "
                "options of fairseq-train alone are passed after --"
            )
    return [revise(recipe, settings) for recipe in recipes]


def revise(recipe: Recipe, settings: Sequence[Setting]) -> Recipe:
    """Return a recipe with the settings that change it, in its cell, too.

    Raises:
        RecipeError: if a value has another type than the recipe's.
    """
    for setting in settings:
        if setting.changes(recipe):
            present = setting.options_of(recipe)[setting.option]
            try:
                recipe = with_value(recipe, setting, of_type(setting.text, present))
            except (KeyError, TypeError, ValueError, AttributeError, yaml.YAMLError) as error:
                message = f"{setting}: {recipe.name} has {present!r} here; give another value of this form"
                raise RecipeError(message) from error
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
    if setting.group == "task" and value != recipe.config["task"][setting.option]:
        from fairseq_mega.lab.prepare.of_recipes import dataset_of  # needs torch, which --print does not

        for option, key in dataset_of(recipe).task_options.items():  # the data are others then
            if setting.option == key:
                cell[option.lstrip("-")] = value
    return replace(recipe, config=config, cell=cell, rates=rates)


def at_each_rate(recipe: Recipe) -> List[Recipe]:
    """The recipe at each of its learning rates, which its cell then names; the recipe itself where it has one only."""
    found = []
    for rate in recipe.rates:
        config = {**recipe.config, "optimization": {**recipe.config["optimization"], "lr": [rate]}}
        found.append(replace(recipe, config=config, cell={**recipe.cell, "lr": rate}))
    return found or [recipe]


def changing(words: Sequence[str]) -> List[str]:
    """Return the words after ``--`` of those options of fairseq-train that a number may depend on."""
    found: List[str] = []
    kept = True
    for word in words:
        option, equals, value = word, "", ""
        if word.startswith("-") and not NUMBER.match(word):
            option, equals, value = word.partition("=")
            kept = not OF_RUNNING.fullmatch(option)
        found += [option, *[value] * bool(equals)] if kept else []
    return found


class Weights(NamedTuple):
    """Weights for a recipe that were trained elsewhere."""

    path: Path  # of the checkpoint, of any layout that the converter supports
    source: str  # their origin, for a reader
    authors: bool  # whether the papers' authors published them, by the address
    sha256: str  # of the file
    updates: Optional[int]  # of their training, None where there is no record
    seed: Optional[int]
    differs: Tuple[str, ...]  # options that decide the outputs and are not the recipe's

    def record(self) -> Dict[str, Any]:
        """Return the record of the weights for a result file."""
        return {name: value for name, value in self._asdict().items() if name != "path"}


@dataclass(frozen=True)
class Choices:
    """Settings of a command that hold for all of its recipes."""

    out: Path  # folder of runs, results and tables
    root: Path = Path()  # start of the relative paths of the recipes
    data: Optional[Path] = None  # folder of the data, or of a folder for each of several data sets
    gpus: int = 0  # that may be used; 0 for the CPU
    # Fewer updates than the paper's; the schedule is shortened in proportion, but for what is in ``settings``
    max_update: Optional[int] = None
    # One of fp32, tf32, bf16 and fp16; by default TF32 on GPUs, as torch had it when the papers' models were
    # trained, and else float32
    precision: Optional[str] = None
    automatic: Optional[str] = None  # precision of recipes that leave it to the machine, instead of this default
    settings: Tuple[Setting, ...] = ()  # changes that the recipes already contain
    extra: Tuple[str, ...] = ()  # further arguments of fairseq-train
    smoke: bool = False  # toy models, a few updates, a little invented data, on the CPU
    workers: int = 1  # processes that prepare data
    # By the names of recipes those that are scored, in place of a training's
    weights: Mapping[str, Weights] = field(default_factory=dict)

    def precision_of(self, recipe: Recipe) -> str:
        """Return the precision of a recipe's training."""
        automatic = self.automatic if recipe.precision == AUTO else None
        return self.precision or automatic or ("tf32" if self.gpus > 0 else "fp32")

    def settings_of(self, recipe: Recipe) -> Dict[str, str]:
        """The keys of the settings that change a recipe to their texts."""
        return {setting.key: setting.text for setting in self.settings if setting.changes(recipe)}

    def conditions(self, recipe: Recipe) -> Dict[str, Any]:
        """Return the conditions of a result that its table requires: not the seed, and not what its cell shows."""
        used = self.precision_of(recipe)
        own = [setting for setting in self.settings if setting.changes(recipe) and not setting.shows(recipe)]
        return {
            "max_update": self.max_update,
            "keep_schedule": False,  # of an option of earlier versions, for the digests of their results
            "precision": "fp32" if used == "tf32" else used,
            "overrides": {setting.key: setting.text for setting in own if setting.group != EVALUATE},
            "evaluation": {setting.option: setting.text for setting in own if setting.group == EVALUATE},
            "extra": changing(self.extra),
            "smoke": self.smoke,
        }


def check_settings(recipe: Recipe, choices: Choices) -> None:
    """Refuse settings that do not suit a recipe, and options after ``--`` that it or an option of ours sets.

    Raises:
        RecipeError: naming the option.
    """
    updates, published = choices.max_update or 0, recipe.updates
    if updates > published and recipe.source != "ours":
        raise RecipeError(f"--max-update is {updates}, and the training of {recipe.name} has {published}: give fewer")
    if recipe.measured and choices.precision == "fp16":
        raise RecipeError(f"{recipe.name}: --precision fp16 leaves the range of MEGALODON's sums: give bf16 or fp32")
    if not choices.extra and not choices.settings_of(recipe):
        return
    from fairseq_mega.compat.features.precision import SETS  # and torch

    words = without_user_dir(arguments(recipe.config, recipe.preset))
    own = parse_by_fairseq(words, recipe)
    given = parse_by_fairseq([*words, *choices.extra], recipe)
    trained = [f"{group}.{option}" for group in TRAINING for option in recipe.config[group] if option != "_name"]
    half = [f"common.{name}" for names in SETS.values() for name in names]
    for key in (*trained, *OF_RUNS, *half):
        option = key.partition(".")[2]
        if getattr(own, option, None) != getattr(given, option, None):
            remedy = f"{OF_RUNS.get(key, f'--set {key}=VALUE')}, or the option of this command"
            raise RecipeError(f"{flag_of(option)} after --: results would name the recipe's {key}: give {remedy}")


def parse_by_fairseq(words: Sequence[str], recipe: Recipe) -> Namespace:
    """Parse a command line of fairseq-train.

    Raises:
        RecipeError: with fairseq's message.
    """
    from fairseq import options

    parser = options.get_training_parser()

    def refuse(message: str) -> NoReturn:
        raise RecipeError(f"{recipe.name}: {message}")

    parser.error = refuse
    return options.parse_args_and_arch(parser, list(words))
