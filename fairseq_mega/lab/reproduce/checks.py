"""Checks before anything is made: options that fairseq refuses or that change a number unseen, and the disk."""

import importlib.util
import shlex
import shutil
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import NoReturn, Sequence, Tuple

import torch

from fairseq_mega.compat.features import precision
from fairseq_mega.lab.inspect.recipe_models import model_of
from fairseq_mega.lab.prepare.of_recipes import dataset_of
from fairseq_mega.lab.recipes.command_line import arguments, flag_of, without_user_dir
from fairseq_mega.lab.recipes.recipe import Recipe, RecipeError
from fairseq_mega.lab.runs.files import existing_parent
from fairseq_mega.lab.runs.plotting import load_pyplot
from fairseq_mega.lab.runs.stages import is_done

from . import data
from .counts import LEAST, bytes_of_job, counts_of, size_of
from .jobs import Job
from .settings import OF_RUNS, Choices, is_option
from .tables import is_drawn

TRAINING = ("model", "task", "criterion", "optimizer", "optimization", "lr_scheduler")  # groups of --set
REMEDIES = {
    **OF_RUNS,
    **{f"common.{name}": f"--precision {kind}" for kind, names in precision.SETS.items() for name in names},
    "optimization.max_update": "--max-update N",
}


def check(recipes: Sequence[Recipe], choices: Choices, visible_gpus: int) -> None:
    """Check that everything can be done, so that an error of the last of many trainings is raised before the first one.

    Raises:
        RecipeError: naming all that is missing.
        ValueError: if a requested plot cannot be drawn.
    """
    if choices.gpus > visible_gpus:
        raise RecipeError(
            f"--gpus is {choices.gpus}, but {visible_gpus} are visible: give fewer, or --gpus 0 for the CPU, or look "
            "at CUDA_VISIBLE_DEVICES"
        )
    if choices.gpus == 0 and choices.precision in ("fp16", "tf32"):
        raise RecipeError(f"--precision {choices.precision} needs a GPU: give --gpus, or fp32 or bf16")
    if any(map(is_drawn, recipes)):
        load_pyplot()
    problems = []
    if any("tokenized" in recipe.evaluate for recipe in recipes) and importlib.util.find_spec("sacremoses") is None:
        problems.append("the scores of translations need sacremoses: run 'bash scripts/setup.sh --extras translation'")
    places = data.folders(recipes, choices)
    for place, recipe in data.by_place(recipes).items():
        try:
            dataset_of(recipe).check_readers()
            if choices.processed is None:
                there = data.is_there(recipe, places[place])
                (data.check_origin if there else data.check)(recipe, places[place], choices)
        except ValueError as error:
            problems.append(str(error))
    if problems:
        raise RecipeError("; ".join(problems))


def check_by_fairseq(recipe: Recipe) -> None:
    """Raise a RecipeError unless a training could begin by a recipe with the options of a run: fairseq accepts them,
    and the model and the schedule can be built from them.
    """
    what = f"{recipe.name}, with options passed as --set GROUP.OPTION=VALUE (--yaml lists them)"
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
    from fairseq import options

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


def check_extra(job: Job) -> None:
    """Refuse options after ``--`` that fairseq-train lacks, or that the recipe or an option of ours sets.

    Raises:
        RecipeError: naming the option and what to give in its place.
    """
    recipe, extra = job.recipe, job.choices.extra
    parser, _ = parse_by_fairseq(job.train_arguments(), f"{recipe.name} with {shlex.join(extra)} after --")
    known = parser._option_string_actions
    keys = [f"{group}.{option}" for group in TRAINING for option in recipe.config[group] if option != "_name"]
    flags = {key: flag_of(key.partition(".")[2]) for key in [*keys, *REMEDIES]}
    ours = {name: key for key, flag in flags.items() if flag in known for name in known[flag].option_strings}
    for option in (word.partition("=")[0] for word in extra if is_option(word)):
        key = ours.get(option)
        if key is not None:
            remedy = REMEDIES.get(key, f"--set {key}=VALUE")
            raise RecipeError(
                f"{option} after --: results would name the {key} of {recipe.name}: give {remedy} instead"
            )


def still_needed(job: Job) -> int:
    """Return the bytes that a job will write beyond those that it has written."""
    if is_done(job.folder, job.evaluation_stage):
        return 0
    there = sum(path.stat().st_size for path in job.folder.rglob("*") if path.is_file())
    return max(
        0, (LEAST if job.smoke else bytes_of_job(job.recipe, job.config, counts_of(job.recipe).parameters)) - there
    )


def check_disk(jobs: Sequence[Job], out: Path) -> None:
    """Raise a RecipeError unless the checkpoints of all jobs fit on the disk of ``out``, each training once."""
    needs = {job.folder: still_needed(job) for job in jobs}
    need, folder = sum(needs.values()), existing_parent(out.resolve())
    free = shutil.disk_usage(folder).free
    if need > free:
        raise RecipeError(
            f"the checkpoints of {len(needs)} runs need {size_of(need)}, and {size_of(free)} are free in {folder}: "
            "free some, give --out on a larger disk, or run fewer recipes or --seeds at a time and remove the "
            "checkpoints of finished runs"
        )
