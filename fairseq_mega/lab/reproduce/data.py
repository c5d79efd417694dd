"""The data of recipes: their folders, the commands that make them, their checks, and their origin."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List, Sequence

from fairseq_mega.data.card import record_of
from fairseq_mega.data.class_folders import files_below
from fairseq_mega.data.text_units import tokens_of_file
from fairseq_mega.lab.prepare.dataset import Sources
from fairseq_mega.lab.prepare.layouts import DATA_BIN
from fairseq_mega.lab.prepare.making import settings_of
from fairseq_mega.lab.prepare.of_recipes import check_data, dataset_of, is_published
from fairseq_mega.lab.prepare.registry import DATASETS, options_of, parse
from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.recipes.command_line import flag_of
from fairseq_mega.lab.recipes.recipe import Recipe, RecipeError
from fairseq_mega.lab.report.alike import cell_of
from fairseq_mega.lab.runs.commands import PYTHON
from fairseq_mega.lab.runs.fingerprints import digest_of_data

from .authors_data import find_processed
from .jobs import Job
from .settings import Choices

PREPARE = [*PYTHON, "fairseq_mega.lab.prepare"]
FREE = {"dataset", "seed", "released"}  # data of other seeds and of the archive are a recipe's, too


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


def data_folder(recipe: Recipe, choices: Choices, several: bool) -> Path:
    """Return the folder for the data of a recipe, whether or not they are there.

    Args:
        several: whether the command needs several data sets, so that --data names the folder above them.
    """
    if choices.processed is not None:
        return find_processed(recipe, choices.processed)
    if choices.data is not None and not several:
        return choices.data
    above = choices.data_dir or choices.data or (choices.out / "data" if choices.smoke else None)
    if above is not None:
        return above / name_beside_others(recipe, choices)
    return choices.root / usual_folder(recipe, choices)


def read_by_fairseq(recipe: Recipe, folder: Path) -> Path:
    """Return the folder for fairseq: the data's, or data-bin in it."""
    below = Path(recipe.place).name == DATA_BIN and (folder / DATA_BIN).is_dir()
    return folder / DATA_BIN if below else folder


def folders(recipes: Sequence[Recipe], choices: Choices) -> Dict[str, Path]:
    """The folders of the data that the recipes need, by :attr:`Recipe.place`."""
    needed = by_place(recipes)
    return {place: data_folder(recipe, choices, len(needed) > 1) for place, recipe in needed.items()}


def by_place(recipes: Sequence[Recipe]) -> Dict[str, Recipe]:
    """Return a recipe for each data set that the recipes need, by :attr:`Recipe.place`.

    Raises:
        RecipeError: if two recipes have other data in the same place.
    """
    found: Dict[str, Recipe] = {}
    for recipe in recipes:
        first = recipe if recipe.measured else found.setdefault(recipe.place, recipe)
        if first.data != recipe.data:
            raise RecipeError(
                f"{first.name} has the data '{first.data}' in {recipe.place}, and {recipe.name} '{recipe.data}': give "
                "one of them another folder, task.data"
            )
    return found


def is_released(recipe: Recipe, choices: Choices) -> bool:
    """Return whether the data of a recipe are read from the archive of the Long Range Arena."""
    return choices.released and not choices.smoke and dataset_of(recipe).released is not None and is_published(recipe)


def usual_folder(recipe: Recipe, choices: Choices) -> Path:
    """Return the folder of the data in the recipe; generated and released data do not share one."""
    read = Path(recipe.place)
    top = read.parent if read.name == DATA_BIN else read
    released = dataset_of(recipe).generated and is_released(recipe, choices)
    return top.with_name(f"{top.name}-released") if released else top


def name_beside_others(recipe: Recipe, choices: Choices) -> str:
    """Return the name of the data's folder in a folder of all data.

    Another form of a data set may lie beside the published one: its name has those of the folders above it.
    """
    usual = usual_folder(recipe, choices)
    return usual.name if is_published(recipe) else "-".join(usual.parts[1:]) or usual.name


def sources_of(recipe: Recipe, folder: Path, choices: Choices) -> Sources:
    """Return the sources of the data of a recipe; their archives lie beside the folder of the data by default."""
    released = is_released(recipe, choices)
    beside = released or options_of(recipe.dataset).required.get("--archives", False)
    archives = choices.archives or (folder.parent / "archives" if beside else None)
    return Sources(archives, choices.download, released)


def command(recipe: Recipe, folder: Path, choices: Choices) -> List[str]:
    """Return the command that makes the data of a recipe in a folder; the same one continues an interrupted one."""
    dataset, task = dataset_of(recipe), recipe.config["task"]
    words = [*PREPARE, dataset.name, "--out", str(folder), *recipe.data_options]
    for option, key in dataset.task_options.items():
        words += [option, str(task[key])] if key in task else []
    if "--workers" in options_of(dataset.name).required:
        words += ["--workers", str(choices.workers)]
    return [*words, *(["--smoke"] if choices.smoke else source_options(recipe, folder, choices))]


def source_options(recipe: Recipe, folder: Path, choices: Choices) -> List[str]:
    """Return the options that choose the sources of data."""
    sources, known = sources_of(recipe, folder, choices), options_of(recipe.dataset).required
    if dataset_of(recipe).released is not None and not sources.released:  # generated, or from tables
        return []
    words = [["--released"]] * sources.released
    words += [] if sources.archives is None else [["--archives", str(sources.archives)]]
    words += [] if sources.download else [["--no-download"]]
    return [word for option, *values in words if option in known for word in (option, *values)]


def check(recipe: Recipe, folder: Path, choices: Choices) -> None:
    """Check data that are still to be made.

    Raises:
        ValueError: where the folder has a part of them, or their sources are neither there nor may be fetched.
    """
    dataset, sources = dataset_of(recipe), sources_of(recipe, folder, choices)
    if recipe.own_data and not choices.smoke:
        raise RecipeError(
            f"{folder} holds no complete data: give yours with --data, or run fairseq-mega-prepare {dataset.name} "
            f"--out {folder}"
        )
    dataset.layout.check_no_part(folder, dataset.name)
    dataset.check_packages()
    if choices.smoke:
        return
    if dataset.released is not None and sources.released and sources.archives is not None:
        dataset.released.check(sources.archives, sources.download)
    dataset.check_sources(folder, sources)


def fit(recipe: Recipe, folder: Path) -> Recipe:
    """Return a recipe with the number of classes of a user's data, texts or images; others are left as they are."""
    if not recipe.own_data:
        return recipe
    images, texts = folder / "label" / "train.label", folder / "label-bin" / "dict.txt"
    classes = len(set(tokens_of_file(images if images.exists() else texts)))
    model = {**recipe.config["model"], "sentence_class_num": classes}
    return replace(recipe, config={**recipe.config, "model": model})


def digest_of(recipe: Recipe, folder: Path, choices: Choices) -> str:
    """Return the digest that identifies the existing data of a recipe among others of their kind."""
    if choices.processed is None:
        return dataset_of(recipe).layout.examine(folder).digest
    # whose files may have other names
    files, hidden = files_below(folder)
    return digest_of_data([*files, *filter(Path.is_file, hidden)], folder)


def origin_of(job: Job) -> str:
    """Return the origin of a job's data for its result: generated, released, own, random, invented for a smoke run, or
    unknown where fairseq-mega-prepare did not make them.
    """
    if job.smoke:
        return "invented"
    if job.recipe.measured:
        return "random tokens"
    if job.choices.processed is not None:
        return "released, processed by the authors"
    source = source_of(job.data)
    dataset, origin = DATASETS.get(source.get("dataset", "")), str(source.get("origin", ""))
    if origin.startswith("generated"):
        return "generated"
    if dataset is not None and dataset.own:
        return "own"
    return "released" if origin else "of unknown origin"


def source_of(folder: Path) -> Dict[str, Any]:
    """Return the record of fairseq-mega-prepare on the data in a folder; empty where there is none."""
    return record_of(folder.parent if folder.name == DATA_BIN else folder)


def check_origin(recipe: Recipe, folder: Path, choices: Choices) -> None:
    """Raise a RecipeError if a folder has other data than a run requires: of another set, invented or smaller ones.

    Recipes with the user's data, and those that compare models on any data, accept other data sets.
    """
    source = source_of(folder)
    settings = source.get("settings") or {}
    if not choices.smoke and settings.get("smoke"):
        raise RecipeError(f"{folder} holds invented data of --smoke: give another folder, remove it, or add --smoke")
    if is_released(recipe, choices) and str(source.get("origin", "")).startswith("generated"):
        raise RecipeError(f"{folder} holds generated data: give another folder, or omit --released")
    named, dataset = settings.get("dataset"), dataset_of(recipe).name
    if named not in (None, dataset) and not (recipe.own_data or recipe.any_data):
        raise RecipeError(
            f"{folder} holds data of fairseq-mega-prepare {named}, and {recipe.name} is about {dataset}: give another "
            "folder, or train on these by the line that --print shows"
        )
    other = [] if choices.smoke else other_settings(recipe, settings, folder, choices)
    if other:
        raise RecipeError(
            f"{folder} holds other data than the recipe's, made with {', '.join(other)}: give another folder, in which "
            "the recipe's are made, or train on these by the line that --print shows"
        )


def other_settings(recipe: Recipe, settings: Dict[str, Any], folder: Path, choices: Choices) -> List[str]:
    """List the options that data were made with and that are not those of a recipe's data set; not the raw files, and
    not those that a result records among the options of its task.
    """
    dataset, words = dataset_of(recipe), command(recipe, folder, choices)[len(PREPARE) + 1 :]
    if recipe.own_data or settings.get("dataset") != dataset.name:
        return []
    expected = settings_of(dataset, parse(dataset.name, words))
    free = FREE | {option.lstrip("-").replace("-", "_") for option in dataset.task_options}
    return [
        f"{flag_of(key)} {value} in place of {expected.get(key, 'none')}"
        for key, value in sorted(settings.items())
        if key not in free and value != expected.get(key)
        if not any(
            isinstance(entry, dict) for entry in (value if isinstance(value, list) else [value])
        )  # an input file
    ]
