"""The data of recipes: their folders, the commands that make them, their checks, and their origin."""

from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Dict, List, Sequence

from fairseq_mega.compat.files import locks
from fairseq_mega.data.card import record_of
from fairseq_mega.data.text_units import tokens_of_file
from fairseq_mega.lab.prepare.dataset import Dataset, settings_of
from fairseq_mega.lab.prepare.layouts import DATA_BIN, Examined
from fairseq_mega.lab.prepare.of_recipes import check_data, dataset_of, is_published
from fairseq_mega.lab.prepare.registry import DATASETS, has_option, parse
from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.recipes.command_line import flag_of
from fairseq_mega.lab.recipes.recipe import Recipe, RecipeError
from fairseq_mega.lab.report.alike import cell_of
from fairseq_mega.lab.runs.commands import PYTHON, Execute, execute
from fairseq_mega.lab.runs.files import in_the_way_of
from fairseq_mega.lab.runs.stages import print_line

from .jobs import Job
from .settings import Choices

FREE = {"dataset", "seed", "released"}  # data of other seeds and of the archive are a recipe's, too


@dataclass(frozen=True)
class Data:
    """The data of a recipe in their folder, whether or not they are there."""

    recipe: Recipe
    choices: Choices
    folder: Path

    @property
    def dataset(self) -> Dataset:
        """Return the data set of fairseq-mega-prepare."""
        return dataset_of(self.recipe)

    @property
    def is_there(self) -> bool:
        """Return whether the data are there, all of them."""
        return self.dataset.layout.is_there(self.folder)

    @cached_property
    def examined(self) -> Examined:
        """Return the digest of existing data, which identifies them among others of their kind, and their examples."""
        return self.dataset.layout.examine(self.folder)

    @property
    def read(self) -> Path:
        """Return the folder for fairseq: the data's, or data-bin in it."""
        below = Path(self.recipe.place).name == DATA_BIN and (self.folder / DATA_BIN).is_dir()
        return self.folder / DATA_BIN if below else self.folder

    def words(self) -> List[str]:
        """Return the arguments of fairseq-mega-prepare that make the data, or continue to make them."""
        name, task = self.dataset.name, self.recipe.config["task"]
        words = [name, "--out", str(self.folder), *self.recipe.data_options]
        for option, key in self.dataset.task_options.items():
            words += [option, str(task[key])] if key in task else []
        words += ["--workers", str(self.choices.workers)] if has_option(name, "--workers") else []
        return [*words, *["--smoke"] * self.choices.smoke]

    def fitted(self) -> Recipe:
        """Return the recipe, with the number of classes of a user's data, texts or images."""
        recipe = self.recipe
        if not recipe.own_data:
            return recipe
        images, texts = self.folder / "label" / "train.label", self.folder / "label-bin" / "dict.txt"
        classes = len(set(tokens_of_file(images if images.exists() else texts)))
        model = {**recipe.config["model"], "sentence_class_num": classes}
        return replace(recipe, config={**recipe.config, "model": model})

    def check(self) -> None:
        """Check data that are there; of others that they can be made.

        Raises:
            ValueError: where the folder has other data or a part of them, or the user must name their sources.
        """
        if self.is_there:
            problem = self.difference()
            if problem:
                raise RecipeError(f"{self.folder} holds {problem}: {self.recipe.name} needs another folder")
        elif not self.choices.smoke and (self.recipe.own_data or not self.dataset.fetched):
            raise RecipeError(
                f"{self.folder} holds no complete data: name their folder with --data, or make them with "
                f"'fairseq-mega-prepare {self.dataset.name} --out {self.folder}', see its --help"
            )

    def difference(self) -> str:
        """Return the difference of existing data from those that a run requires: of another set, invented, or of other
        options, but for raw files and options that a result records as its task's; "" for none.

        Recipes with the user's data, and those that compare models on any data, accept other data sets.
        """
        dataset, choices, recipe, card = self.dataset, self.choices, self.recipe, card_of(self.folder)
        settings = card.get("settings") or {}
        named = settings.get("dataset", dataset.name)
        if not choices.smoke and settings.get("smoke"):
            return "invented data of --smoke"
        if named != dataset.name:
            return "" if recipe.own_data or recipe.any_data else f"data of fairseq-mega-prepare {named}"
        if choices.smoke or recipe.own_data or "dataset" not in settings:
            return ""
        expected = settings_of(dataset, parse(dataset.name, self.words()[1:]))
        free = FREE | {option.lstrip("-").replace("-", "_") for option in dataset.task_options}
        other = []
        for key, value in sorted(settings.items()):
            of_files = any(isinstance(entry, dict) for entry in (value if isinstance(value, list) else [value]))
            if key not in free and not of_files and value != expected.get(key):
                other.append(f"{flag_of(key)} {value} in place of {expected.get(key, 'none')}")
        return f"other data than the recipe's, made with {', '.join(other)}" if other else ""

    def make(self, run_command: Execute = execute) -> None:
        """Make the data unless they are there; a lock keeps other runners out.

        Raises:
            StageError: if the command fails.
        """
        above, name = self.folder.parent, self.folder.name
        lock: Any = nullcontext()
        if in_the_way_of(above) is None:
            lock = locks.held(above / f".{name}.lock", str(self.folder), "runner")
        with lock:
            if not self.is_there:
                print_line(f"{self.folder} holds no data: making those of {self.dataset.name}")
                words = [*PYTHON, "fairseq_mega.lab.prepare", *self.words()]
                run_command(words, above / f".{name}" / "prepare.log", {})
            for remark in () if self.choices.smoke else self.dataset.remarks(self.folder, self.examined.examples):
                print_line(remark)


def data_of(recipes: Sequence[Recipe], choices: Choices) -> Dict[str, Data]:
    """Return the data that the recipes need, by :attr:`Recipe.place`.

    Raises:
        RecipeError: if two recipes have other data in the same place.
    """
    needed: Dict[str, Recipe] = {}
    for recipe in recipes:
        first = recipe if recipe.measured else needed.setdefault(recipe.place, recipe)
        if first.data != recipe.data:
            raise RecipeError(
                f"{first.name} has the data '{first.data}' in {recipe.place}, and {recipe.name} '{recipe.data}': give "
                "one of them another folder, task.data"
            )
    several = len(needed) > 1
    return {place: Data(recipe, choices, folder_of(recipe, choices, several)) for place, recipe in needed.items()}


def folder_of(recipe: Recipe, choices: Choices, several: bool) -> Path:
    """Return the folder for the data of a recipe.

    Another form of a data set may lie beside the published one: its name has those of the folders above it.

    Args:
        several: whether the command needs several data sets, so that --data names the folder above them.
    """
    if choices.data is not None and not several:
        return choices.data
    read = Path(recipe.place)
    usual = read.parent if read.name == DATA_BIN else read
    above = choices.data or (choices.out / "data" if choices.smoke else None)
    if above is None:
        return choices.root / usual
    return above / (usual.name if is_published(recipe) else "-".join(usual.parts[1:]) or usual.name)


def check_recipes(recipes: Sequence[Recipe]) -> None:
    """Raise a RecipeError for a recipe whose data do not fit it, or for a user's one in the place of another number."""
    first: Dict[Any, Recipe] = {}
    for recipe in recipes:
        check_data(recipe)
        other = first.setdefault((recipe.report, cell_of(recipe.cell)), recipe)
        if other.name != recipe.name and not {other.name, recipe.name} <= catalogue().keys():
            raise RecipeError(
                f"{recipe.file} and {other.file}: 'cell' places both numbers in the same cell of {recipe.report}: run "
                "them one after the other"
            )


def origin_of(job: Job) -> str:
    """Return the origin of a job's data for its result: generated, released, own, random, invented for a smoke run, or
    unknown where fairseq-mega-prepare did not make them.
    """
    if job.choices.smoke:
        return "invented"
    if job.recipe.measured:
        return "random tokens"
    card = card_of(job.data)
    dataset, origin = DATASETS.get(card.get("dataset", "")), str(card.get("origin", ""))
    if origin.startswith("generated"):
        return "generated"
    if dataset is not None and dataset.own:
        return "own"
    return "released" if origin else "of unknown origin"


def card_of(folder: Path) -> Dict[str, Any]:
    """Return the record of fairseq-mega-prepare on the data in a folder; empty where there is none."""
    return record_of(folder.parent if folder.name == DATA_BIN else folder)
