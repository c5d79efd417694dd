"""The recipes and the choices that options of fairseq-mega-reproduce request, and options that exclude each other."""

import argparse
import importlib
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from fairseq_mega.lab.prepare.of_recipes import check_data
from fairseq_mega.lab.recipes.catalogue import catalogue, find_all
from fairseq_mega.lab.recipes.recipe import Recipe, RecipeError
from fairseq_mega.lab.report.alike import cell_of
from fairseq_mega.lab.runs.options import split_assignment, usable_cores, whole_number
from fairseq_mega.lab.runs.plotting import check_image

from .authors_archives import is_address
from .batches import counts_tokens
from .choices import Choices
from .revising import EVALUATE, Setting, choose, parse_setting, revise_all, whole_numbers
from .tables import is_drawn, options_of


def chosen(options: argparse.Namespace) -> List[Recipe]:
    """Return the recipes that the options select, with the changes by options.

    Raises:
        RecipeError: if there is none, or an option does not suit them.
    """
    found = find_all(options.recipes)
    for recipe in found:
        check_data(recipe)
    check_cells(found)
    for text in options.where:
        found = choose(found, text)
    if options.no_speed and not any("--speed" in options_of(recipe.report) for recipe in found):
        raise RecipeError("--no-speed changes none of the recipes that are chosen: omit it")
    if options.per_step is not None and all(counts_tokens(recipe.config) for recipe in found):
        remedy = "omit it, or give --set dataset.max_tokens=N for smaller batches"
        raise RecipeError(f"--per-step counts examples, and the recipes that are chosen count tokens: {remedy}")
    if options.output is not None and not any(map(is_drawn, found)):
        raise RecipeError("--output is the image file of a figure, and no figure is chosen: omit it")
    if options.output is not None:
        check_image("--output", Path(options.output))
    return revise_all(found, settings_of(options))


def settings_of(options: argparse.Namespace) -> Tuple[Setting, ...]:
    """Return the settings that replace those of the recipes."""
    return tuple(map(parse_setting, options.settings))


def seeds_of(options: argparse.Namespace) -> List[int]:
    """Return the seeds of the options; empty for the recipes' own.

    Raises:
        RecipeError: for anything but whole numbers.
    """
    return [] if options.seeds is None else whole_numbers("--seeds", options.seeds)


def choices_of(options: argparse.Namespace, extra: Sequence[str], visible: Callable[[], int]) -> Choices:
    """Return the settings that the options make for all recipes.

    Args:
        extra: arguments of fairseq-train.
        visible: returns the number of GPUs; called only where no option sets it.

    Raises:
        RecipeError: if options contradict each other.
    """
    if options.keep_schedule and options.max_update is None:
        raise RecipeError("--keep-schedule needs --max-update, the updates to stop after")
    check_one_of_both(options)
    if not options.list:
        check_launcher(options)
    gpus = number("--gpus", options.gpus, 0)
    per_run, per_step = number("--gpus-per-run", options.gpus_per_run), number("--per-step", options.per_step)
    updates, workers = number("--max-update", options.max_update), number("--workers", options.workers)
    out = options.out or options.root / ("outputs/reproduce-smoke" if options.smoke else "outputs/reproduce")
    address = options.processed if options.processed and is_address(options.processed) else None
    processed = Path(options.processed) if options.processed else None
    if address is not None:
        processed = (options.archives or options.root / "outputs" / "archives") / "processed"
    return Choices(
        out=out.resolve(),
        root=options.root.resolve(),
        data=options.data and options.data.resolve(),
        data_dir=options.data_dir and options.data_dir.resolve(),
        processed=processed and processed.resolve(),
        processed_from=address,
        released=options.released,
        results=options.results_dir and options.results_dir.resolve(),
        gpus=0 if options.smoke else visible() if gpus is None else gpus,
        gpus_per_run=per_run,
        per_step=per_step,
        max_update=updates,
        keep_schedule=options.keep_schedule,
        precision=options.precision,
        settings=settings_of(options),
        extra=tuple(extra),
        smoke=options.smoke,
        workers=workers or usable_cores(),
        archives=options.archives and options.archives.resolve(),
        download=not options.no_download,
    )


def check_cells(recipes: Sequence[Recipe]) -> None:
    """Raise a RecipeError for a recipe in the user's file whose number has the place of another one in the report."""
    first: Dict[Any, Recipe] = {}
    for recipe in recipes:
        other = first.setdefault((recipe.report, cell_of(recipe.cell)), recipe)
        if other.name != recipe.name and not {other.name, recipe.name} <= catalogue().keys():
            raise RecipeError(
                f"{recipe.file} and {other.file}: 'cell' gives both numbers the same place in {recipe.report}: run "
                "them one after the other"
            )


def check_one_of_both(options: argparse.Namespace) -> None:
    """Raise a RecipeError for two options of which one would have no effect."""
    if options.data is not None and options.data_dir is not None:
        raise RecipeError("--data and --data-dir both name the folder of the data: give one of them")
    if options.max_update is not None:
        for setting in settings_of(options):
            if setting.key == "optimization.max_update":
                raise RecipeError(f"{setting} and --max-update both set the updates: give one of them")
    if options.slurm and options.launcher != "slurm":
        raise RecipeError(f"--slurm {options.slurm[0]} is for --launcher slurm: add it, or omit --slurm")
    if options.gpus_per_run is not None and options.gpus == "0":
        raise RecipeError("--gpus-per-run is for GPUs, and --gpus is 0: leave one of them out")


def number(option: str, text: Optional[str], least: int = 1) -> Optional[int]:
    """A whole number; None where the option is left out.

    Raises:
        RecipeError: for anything else, or a smaller one.
    """
    if text is None:
        return None
    found = whole_number(text, least)
    if found is None:
        raise RecipeError(f"{option} is '{text}': a whole number of at least {least} is needed")
    return found


def check_launcher(options: argparse.Namespace) -> None:
    """Raise a ValueError if jobs cannot be submitted to SLURM, before data are made for hours."""
    for text in options.slurm:
        parameter(text)
    if options.launcher == "slurm":
        try:
            importlib.import_module("submitit")
        except ImportError as error:
            remedy = "pip install submitit, or give --launcher print"
            raise RecipeError(f"--launcher slurm needs submitit: {remedy}") from error


def parameter(text: str) -> Tuple[str, Any]:
    """Split NAME=VALUE; a whole number becomes one.

    Raises:
        ValueError: if a part is missing.
    """
    name, value = split_assignment("--slurm", text, "timeout_min=600")
    return name, int(value) if value.isdigit() else value


def check_printed(options: argparse.Namespace, extra: Sequence[str]) -> None:
    """Refuse options that change a run beside --print and --yaml, which show the recipe.

    Raises:
        RecipeError: naming the option.
    """
    what = "--yaml" if options.yaml else "--print"
    given = [action.option_strings[0] for action in options.of_runs if getattr(options, action.dest) != action.default]
    given += [f"{word} after --" for word in extra[:1]]
    if given:
        raise RecipeError(f"{given[0]} is for a run, and {what} shows the recipe: omit it")


def check_weights(options: argparse.Namespace, extra: Sequence[str]) -> None:
    """Refuse options about a training beside --checkpoint, which needs no training.

    Raises:
        RecipeError: naming the option.
    """
    if options.checkpoint is None:
        return
    given = {
        "--list": options.list,
        "--path": options.path,
        "--seeds": options.seeds,
        "--max-update": options.max_update,
        "--only-train": options.only_train,
        "--gpus-per-run": options.gpus_per_run,
        "--launcher": options.launcher != "local",
        f"--precision {options.precision}": options.precision not in (None, "fp32", "tf32"),
        " and ".join(f"{word} after --" for word in extra[:1]): extra,
        **{str(setting): setting.group != EVALUATE for setting in settings_of(options)},
    }
    for option, wanted in given.items():
        if wanted:
            raise RecipeError(f"{option} is for a training, and --checkpoint only scores weights: omit it")
