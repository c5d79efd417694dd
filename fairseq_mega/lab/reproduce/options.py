"""Options of fairseq-mega-reproduce, and the recipes and choices from them."""

import argparse
import importlib
import os
from pathlib import Path
from typing import Any, Callable, List, Optional, Sequence, Tuple

from fairseq_mega.lab.recipes.catalogue import find_all
from fairseq_mega.lab.recipes.recipe import Recipe, RecipeError
from fairseq_mega.lab.runs.options import whole_number

from .authors_archives import is_address
from .choices import PRECISIONS, Choices
from .revising import EVALUATE, Setting, choose, parse_setting, revise_all, whole_numbers
from .tables import options_of

LAUNCHERS = ("local", "slurm", "print")


def check_launcher(options: argparse.Namespace) -> None:
    """Raise a RecipeError if jobs cannot be submitted to SLURM, before data are made for hours."""
    for text in options.slurm:
        parameter(text)
    if options.launcher == "slurm":
        try:
            importlib.import_module("submitit")
        except ImportError as error:
            remedy = "pip install submitit, or give --launcher print"
            raise RecipeError(f"--launcher slurm needs submitit: {remedy}") from error


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


REMOVED = {  # options that earlier versions had
    "--task": "--where task=LIST (of translations --where direction=LIST)",
    "--models": "--where name=LIST, the last parts of the recipes' names",
    "--functions": "--where attention=LIST",
    "--attention": "--where attention=LIST",
    "--direction": "--where direction=LIST",
    "--dims": "--where ema_dim=LIST, or --set model.encoder_n_dim=N",
    "--chunks": "--where chunk=LIST, or --set evaluate.contexts=LIST where one model is scored in several chunks",
    "--chunk": "--set model.encoder_chunk_size=C, with NAME: in front for the recipes of that name only",
    "--transformer-lr": "--set transformer:optimization.lr=RATE",
    "--scaling": "--set task.sc_scaling=once",
    "--average": "--set evaluate.average=N",
    "--segments": "--set evaluate.contexts=LIST",
    "--right-segments": "--set evaluate.contexts=LIST",
    "--updates": "--max-update N",
    "--lr": "--set optimization.lr=RATE",
    "--batch": "--set dataset.batch_size=N",
    "--threads": "OMP_NUM_THREADS=N in front of the command",
    "--gpu": "--gpus 1",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options; ``of_runs`` in the result has those about runs, which no recipe shows."""
    add = parser.add_argument
    add(
        "recipes",
        nargs="*",
        metavar="RECIPE|TABLE",
        help="for example mega/table2/text/mega_chunk, mega/table2, figure4, or a file",
    )
    doing = parser.add_argument_group("actions").add_argument
    doing("--list", action="store_true", help="list the recipes: state, paper's value, ours, time left")
    doing("--print", action="store_true", help="print each recipe as a command line of fairseq-train")
    doing("--yaml", action="store_true", help="print each recipe as one whole YAML file, without inheritance")
    which = parser.add_argument_group("choice and change of recipes").add_argument
    which(
        "--where",
        action="append",
        default=[],
        metavar="KEY=LIST",
        help="recipes whose KEY ('name' or an entry of their cell, see --yaml) is in LIST: task=text,image, "
        "name=mega_chunk, direction=en-de; may be repeated",
    )
    which(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="[NAME:]GROUP.OPTION=VALUE",
        help="set an option in the recipes that have it, or in recipes named NAME: optimization.lr=0.002, "
        "mega_chunk:model.encoder_chunk_size=64, evaluate.average=10; may be repeated",
    )
    which("--root", type=Path, default=Path(), help=argparse.SUPPRESS)
    shown = len(parser._actions)
    how = parser.add_argument_group("training").add_argument
    how("--only-train", action="store_true", help="do not evaluate, and print no table")
    how("--launcher", choices=LAUNCHERS, default="local", help="run here, submit to SLURM, or print the commands")
    how("--slurm", action="append", default=[], metavar="NAME=VALUE", help="parameter of submitit's executor")
    how("--seeds", "--seed", metavar="LIST", help="seeds, separated by commas (default: the recipe's)")
    how("--gpus", metavar="N", help="number of GPUs for all runs together, 0: the CPU (default: all visible)")
    how(
        "--gpus-per-run",
        metavar="N",
        help="maximum GPUs of one run (default: as many as the published batch comes from)",
    )
    how("--per-step", metavar="N", help="examples of one pass on a GPU (default: the recipe's)")
    how(
        "--max-update",
        metavar="N",
        help="train N updates, not more than the paper's; warm-up and decay are shortened alike, but --set keeps its "
        "values",
    )
    how("--keep-schedule", action="store_true", help="with --max-update: keep the paper's schedule and stop it at N")
    how(
        "--precision",
        choices=PRECISIONS,
        help="default: tf32 on GPUs, as in the papers' trainings; else fp32; bf16 in quick starts where it is fast",
    )
    how("--fp32", dest="precision", action="store_const", const="fp32", help="the same as --precision fp32")
    how("--bf16", dest="precision", action="store_const", const="bf16", help="the same as --precision bf16")
    where = parser.add_argument_group("files and evaluation").add_argument
    where(
        "--out",
        "--work-dir",
        type=Path,
        metavar="DIR",
        help="folder of runs, results and tables (default: outputs/reproduce)",
    )
    where("--data", type=Path, metavar="DIR", help="data folder; with several data sets, one folder each in it")
    where("--data-dir", type=Path, metavar="DIR", help="folder with a folder for each data set")
    where(
        "--processed",
        metavar="DIR|URL",
        help="instead of --data, the authors' processed data: an unpacked archive, the address of an archive, or "
        "the word published, which downloads all archives that are needed",
    )
    where(
        "--checkpoint",
        metavar="FILE|DIR|URL",
        help="score these weights without training: a checkpoint, or a folder or zip file of checkpoints, of the "
        "published code or of this package; or the word published, for the authors' weights (see --list)",
    )
    where("--released", action="store_true", help="use ListOps, Retrieval, Pathfinder, Path-X of LRA's archive (8 GB)")
    where(
        "--archives",
        type=Path,
        metavar="DIR",
        help="folder of the archives of WMT'16 and LRA, which are downloaded into it where missing",
    )
    where("--no-download", action="store_true", help="fail if an archive is missing, instead of downloading it")
    where("--results-dir", type=Path, metavar="DIR", help="folder for the result files (default: results in --out)")
    where("--path", type=Path, metavar="FILE", help="checkpoint for a figure of one model, with --data")
    where("--output", metavar="FILE", help="image file of a figure")
    where("--workers", "--processes", metavar="N", help="number of processes that prepare data")
    where(
        "--smoke", action="store_true", help="train toy models for a few updates on a little invented data, on the CPU"
    )
    where("--no-speed", action="store_true", help="do not measure speed and memory for a table that has them")
    parser.set_defaults(of_runs=parser._actions[shown:])


def check_removed(words: Sequence[str]) -> None:
    """Raise a RecipeError for an option of an earlier version, with its replacement."""
    for word in words:
        option = word.partition("=")[0]
        if option in REMOVED:
            raise RecipeError(f"{option} is not an option any more: give {REMOVED[option]}")


def check_printed(options: argparse.Namespace, extra: Sequence[str]) -> None:
    """Refuse options that change a run beside --print and --yaml, which show the recipe.

    Raises:
        RecipeError: naming the option.
    """
    what = "--yaml" if options.yaml else "--print"
    given = [action.option_strings[0] for action in options.of_runs if getattr(options, action.dest) != action.default]
    given += [f"{word} after --" for word in extra[:1]]
    if given:
        raise RecipeError(f"{given[0]} is for a run, and {what} shows the recipe: leave it out")


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
            raise RecipeError(f"{option} is for a training, and --checkpoint only scores weights: leave it out")


def cores() -> int:
    """Usable cores."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def chosen(options: argparse.Namespace) -> List[Recipe]:
    """Return the recipes that the options select, with the changes by options.

    Raises:
        RecipeError: if there is none, or an option does not suit them.
    """
    found = find_all(options.recipes)
    for text in options.where:
        found = choose(found, text)
    if options.no_speed and not any("--speed" in options_of(recipe.report) for recipe in found):
        raise RecipeError("--no-speed changes none of the recipes that are chosen: leave it out")
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
        workers=workers or cores(),
        archives=options.archives and options.archives.resolve(),
        download=not options.no_download,
    )


def split_extra(given: Sequence[str]) -> Tuple[List[str], List[str]]:
    """The command's own arguments, and those after -- for fairseq-train."""
    words = list(given)
    if "--" not in words:
        return words, []
    place = words.index("--")
    return words[:place], words[place + 1 :]


def parameter(text: str) -> Tuple[str, Any]:
    """Split NAME=VALUE; a whole number becomes one.

    Raises:
        RecipeError: if a part is missing.
    """
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise RecipeError(f"--slurm {text!r}: write it as NAME=VALUE, for instance timeout_min=600")
    return name, int(value) if value.isdigit() else value
