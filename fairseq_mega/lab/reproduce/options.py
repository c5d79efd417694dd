"""Options of fairseq-mega-reproduce, and the recipes and wishes that they stand for."""

import argparse
import importlib
import os
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from fairseq_mega.lab.recipes.catalogue import find_all
from fairseq_mega.lab.recipes.recipe import Recipe, RecipeError
from fairseq_mega.lab.runs.options import whole_number

from .processed_archives import is_address
from .revising import choose, revise, stem, whole_numbers, with_each
from .wishes import PRECISIONS, Wishes

LAUNCHERS = ("local", "slurm", "print")
PANELS = (([100, 75, 50, 25, 15, 10, 5], [2048]), ([10], [512, 1024, 1536, 2048, 2560, 3072]))  # Figure 6
PANELS_SMOKE = (([20, 4, 1], [16]), ([2], [8, 16, 32]))


def check_launcher(options: argparse.Namespace) -> None:
    """Raise a RecipeError where jobs cannot be handed to SLURM: their data might take hours to be made first."""
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


def rate(option: str, text: str) -> float:
    """A positive number.

    Raises:
        RecipeError: for anything else.
    """
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise RecipeError(f"{option} is '{text}': a number above 0 is needed, for instance 0.001")
    return value


OF_RECIPES = {  # destinations of options that choose or change recipes, or say that they are shown
    *("help", "recipes", "list", "print", "yaml", "root", "task", "models", "functions", "attention", "direction"),
    *("dims", "chunks", "chunk", "transformer_lr", "scaling"),
}
SUITS: Dict[str, Callable[[Recipe], bool]] = {  # options to whether a recipe is one that they change
    "dims": lambda recipe: recipe.report == "figure4",
    "chunks": lambda recipe: recipe.report in ("figure4", "figure6"),
    "chunk": lambda recipe: recipe.report == "figure6" or "encoder_chunk_size" in recipe.config["model"],
    "transformer_lr": lambda recipe: stem(recipe) == "transformer",
    "scaling": lambda recipe: "sc_scaling" in recipe.config["task"],
    "average": lambda recipe: "average" in recipe.evaluate,
    "segments": lambda recipe: recipe.report == "figure6",
    "right_segments": lambda recipe: recipe.report == "figure6",
    "no_speed": lambda recipe: recipe.report == "table2",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options."""
    add = parser.add_argument
    add("recipes", nargs="*", metavar="RECIPE|TABLE", help="mega/table2/text/mega_chunk, mega/table2, figure4, a file")
    doing = parser.add_argument_group("what is done").add_argument
    doing("--list", action="store_true", help="list the recipes: state, paper's value, ours, time left")
    doing("--print", action="store_true", help="print each recipe as the line of fairseq-train")
    doing("--yaml", action="store_true", help="print each recipe as one YAML file that inherits nothing but fairseq's")
    doing("--only-train", action="store_true", help="neither evaluate nor print a table")
    doing("--launcher", choices=LAUNCHERS, default="local", help="run here, hand to SLURM, or print the commands")
    doing("--slurm", action="append", default=[], metavar="NAME=VALUE", help="parameter of submitit's executor")
    which = parser.add_argument_group("which recipes of a table").add_argument
    which("--task", metavar="LIST", help="tasks, or all")
    which("--models", metavar="LIST", help="models, for instance mega,mega-chunk,transformer")
    which("--functions", metavar="LIST", help="attention functions")
    which("--attention", metavar="LIST", help="Table 7: softmax, laplace or both")
    which("--direction", metavar="LIST", help="en-de, de-en or both")
    which("--dims", metavar="LIST", help="Figure 4: dimensions N of the moving average")
    which("--chunks", metavar="LIST", help="Figure 4: chunks of the right panel; Figure 6: the same")
    how = parser.add_argument_group("how they are trained").add_argument
    how("--seeds", "--seed", metavar="LIST", help="seeds, separated by commas (default: the recipe's)")
    how("--gpus", metavar="N", help="GPUs that runs are spread over, 0: the CPU (default: visible)")
    how("--gpus-per-run", metavar="N", help="at most (default: as many as the published batch comes from)")
    how("--per-step", metavar="N", help="examples that a GPU takes at a time (default: the recipe's)")
    how("--max-update", metavar="N", help="fewer updates; the schedule is shortened")
    how("--keep-schedule", action="store_true", help="with --max-update: stop the paper's schedule there")
    how("--precision", choices=PRECISIONS, help="default: tf32 on GPUs, as when the papers' were trained; else fp32")
    how("--fp32", dest="precision", action="store_const", const="fp32", help="the same as --precision fp32")
    how("--bf16", dest="precision", action="store_const", const="bf16", help="the same as --precision bf16")
    how("--chunk", metavar="C", help="attention chunk in place of the recipe's, -1: full attention")
    how("--transformer-lr", metavar="RATE", help="peak rate of the Transformers")
    how("--scaling", metavar="HOW", help="speech: samples divided by 32768 once or twice")
    how("--average", metavar="N", help="translation: last epochs to average (default: 5)")
    how("--segments", metavar="LIST", help="Figure 6: segments K of the left panel")
    how("--right-segments", metavar="K", help="Figure 6: segments of the right panel")
    where = parser.add_argument_group("where").add_argument
    where("--out", "--work-dir", type=Path, metavar="DIR", help="runs, results, tables (default: outputs/reproduce)")
    where("--data", type=Path, metavar="DIR", help="the data, with several data sets one folder each")
    where("--data-dir", type=Path, metavar="DIR", help="folder with a folder for each data set")
    where(
        "--processed",
        metavar="DIR|URL",
        help="in place of --data the authors' processed archives, unpacked; or the "
        "address of one that is fetched, or the word published for all that are needed",
    )
    where("--released", action="store_true", help="ListOps, Retrieval, Pathfinder, Path-X from LRA's archive (8 GB)")
    where("--archives", type=Path, metavar="DIR", help="folder that holds or gets the archives of WMT'16 and LRA")
    where("--no-download", action="store_true", help="refuse to download archives")
    where("--results-dir", type=Path, metavar="DIR", help="folder for the result files (default: results in --out)")
    where("--path", type=Path, metavar="FILE", help="Figure 6: a trained checkpoint, and --data what it was trained on")
    where("--output", metavar="FILE", help="the plot of a figure")
    where("--root", type=Path, default=Path(), help=argparse.SUPPRESS)
    where("--workers", "--processes", metavar="N", help="processes that prepare data")
    where("--smoke", action="store_true", help="toy models, a few updates, a little made-up data, on the CPU")
    where("--no-speed", action="store_true", help="Table 2: do not measure speed and memory")


def check_printed(options: argparse.Namespace, extra: Sequence[str]) -> None:
    """Refuse options that change a run and not the recipe, which --print and --yaml show.

    Raises:
        RecipeError: naming the option.
    """
    parser = argparse.ArgumentParser()
    add_options(parser)
    what = "--yaml" if options.yaml else "--print"
    for action in parser._actions:
        given = getattr(options, action.dest, action.default)
        if action.dest not in OF_RECIPES and given != action.default:
            raise RecipeError(f"{action.option_strings[0]} is for a run, and {what} shows the recipe: leave it out")
    if extra:
        raise RecipeError(f"{extra[0]} behind -- is for a run, and {what} shows the recipe: leave it out")


def cores() -> int:
    """Usable cores."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def chosen(options: argparse.Namespace) -> List[Recipe]:
    """The recipes that the options stand for, revised where an option says so.

    Raises:
        RecipeError: if there is none, or an option does not suit them.
    """
    found = find_all(options.recipes)
    found = choose(found, "--task", options.task, lambda recipe: recipe.cell.get("task", recipe.cell.get("direction")))
    found = choose(found, "--models", options.models, stem)
    found = choose(found, "--functions", options.functions, lambda recipe: recipe.cell.get("attention"))
    found = choose(found, "--attention", options.attention, lambda recipe: recipe.cell.get("attention"))
    found = choose(found, "--direction", options.direction, lambda recipe: recipe.cell.get("direction"))
    found = with_chunk(vary(found, options), options)
    found = [revise(recipe, overrides(options, recipe)) for recipe in found]
    if not found:
        raise RecipeError("no recipe is left: the options choose none together")
    for name, suits in SUITS.items():
        if getattr(options, name) not in (None, False) and not any(map(suits, found)):
            raise RecipeError(f"--{name.replace('_', '-')} changes none of the recipes that are chosen: leave it out")
    return found


def vary(recipes: Sequence[Recipe], options: argparse.Namespace) -> List[Recipe]:
    """The panels of Figure 4 with other dimensions and chunks than the paper's."""
    plain = [recipe for recipe in recipes if recipe.report != "figure4"]
    figure = [recipe for recipe in recipes if recipe.report == "figure4"]
    if not figure or (options.dims is None and options.chunks is None):
        return list(recipes)
    left = [recipe for recipe in figure if stem(recipe).startswith("n")]
    right = [recipe for recipe in figure if recipe not in left]
    if options.dims is not None:
        left = with_each(left, "n16", "encoder_n_dim", whole_numbers("--dims", options.dims))
    if options.chunks is not None:
        chunks = whole_numbers("--chunks", options.chunks, 1, full=True)
        right = with_each(right, "full", "encoder_chunk_size", chunks)
    return [*plain, *left, *right]


def with_chunk(recipes: Sequence[Recipe], options: argparse.Namespace) -> List[Recipe]:
    """--chunk: of MEGA-chunk in Table 2, where -1 leaves it out, of the left panel of Figure 4, else of all."""
    if options.chunk is None:
        return list(recipes)
    (chunk,) = whole_numbers("--chunk", options.chunk, 1, full=True)
    found = []
    for recipe in recipes:
        left_alone = (recipe.report == "table2" and stem(recipe) != "mega-chunk") or (
            recipe.report == "figure4" and not stem(recipe).startswith("n")
        )
        if left_alone:
            found.append(recipe)
        elif recipe.report != "table2" or chunk != -1:
            found.append(revise(recipe, {"model.encoder_chunk_size": chunk}))
    if not found:
        raise RecipeError("--chunk is -1, which leaves mega-chunk out, and --models names nothing else")
    return found


def overrides(options: argparse.Namespace, recipe: Optional[Recipe] = None) -> Dict[str, Any]:
    """Values in place of the published ones, of one recipe or of all of them."""
    found: Dict[str, Any] = {}
    if options.scaling is not None:
        if options.scaling not in ("once", "twice"):
            raise RecipeError(f"--scaling is '{options.scaling}': choose from once, twice")
        found["task.sc_scaling"] = options.scaling
    if options.transformer_lr is not None and (recipe is None or stem(recipe) == "transformer"):
        found["optimization.lr"] = [rate("--transformer-lr", options.transformer_lr)]
    return found


def evaluation(options: argparse.Namespace) -> Dict[str, Any]:
    """Entries in place of those of the recipes' evaluation."""
    found: Dict[str, Any] = {}
    if options.average is not None:
        found["average"] = number("--average", options.average)
    if options.segments is not None or options.right_segments is not None:
        left, right = PANELS_SMOKE if options.smoke else PANELS
        lists = {"--segments": options.segments, "--chunk": options.chunk}
        lists.update({"--right-segments": options.right_segments, "--chunks": options.chunks})
        given = {name: whole_numbers(name, text, 1) for name, text in lists.items() if text is not None}
        found["contexts"] = [
            {"segments": given.get("--segments", left[0]), "chunk_size": given.get("--chunk", left[1])},
            {"segments": given.get("--right-segments", right[0]), "chunk_size": given.get("--chunks", right[1])},
        ]
    return found


def seeds_of(options: argparse.Namespace) -> List[int]:
    """The seeds that are wanted; nothing for the recipes' own.

    Raises:
        RecipeError: for anything but whole numbers.
    """
    if options.seeds is None:
        return []
    try:
        return whole_numbers("--seeds", options.seeds)
    except RecipeError as error:
        raise RecipeError(str(error).replace("1,16", "1,11,101")) from error


def wishes_of(options: argparse.Namespace, extra: Sequence[str], visible: Callable[[], int]) -> Wishes:
    """What the options change in all recipes.

    Args:
        extra: arguments of fairseq-train.
        visible: tells how many GPUs there are; asked only where no option says how many to use.

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
    return Wishes(
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
        overrides=overrides(options),
        evaluation=evaluation(options),
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
