"""Checks before anything is made: GPUs, data, and options with which a result would name another training."""

import shlex
from argparse import Namespace
from typing import NoReturn, Sequence

from fairseq_mega.compat.features import precision
from fairseq_mega.lab.prepare.of_recipes import dataset_of
from fairseq_mega.lab.recipes.command_line import flag_of, without_user_dir
from fairseq_mega.lab.recipes.recipe import Recipe, RecipeError

from . import data
from .jobs import Job
from .settings import OF_RUNS, Choices

TRAINING = ("model", "task", "criterion", "optimizer", "optimization", "lr_scheduler")  # groups of --set
REMEDIES = {
    **OF_RUNS,
    **{f"common.{name}": f"--precision {kind}" for kind, names in precision.SETS.items() for name in names},
    "optimization.max_update": "--max-update N",
}


def check(recipes: Sequence[Recipe], choices: Choices, visible_gpus: int) -> None:
    """Check the data of all recipes, so that an error of the last one is raised before the first training.

    Raises:
        RecipeError: naming all that is missing.
    """
    if choices.gpus > visible_gpus:  # fairseq trains on the CPU where a GPU does not exist
        raise RecipeError(
            f"--gpus is {choices.gpus}, but {visible_gpus} are visible: give fewer, or --gpus 0 for the CPU, or look "
            "at CUDA_VISIBLE_DEVICES"
        )
    if choices.gpus == 0 and choices.precision in ("fp16", "tf32"):
        raise RecipeError(f"--precision {choices.precision} needs a GPU: give --gpus, or fp32 or bf16")
    problems = []
    places = data.folders(recipes, choices)
    for place, recipe in data.by_place(recipes).items():
        try:
            dataset_of(recipe).check_readers()
            if choices.processed is None:
                there = dataset_of(recipe).layout.is_there(places[place])
                (data.check_origin if there else data.check)(recipe, places[place], choices)
        except ValueError as error:
            problems.append(str(error))
    if problems:
        raise RecipeError("; ".join(problems))


def check_options(job: Job) -> None:
    """Refuse options that fairseq-train refuses, and those after ``--`` that a recipe or an option of ours sets.

    Raises:
        RecipeError: naming the option and what to give in its place.
    """
    extra, words = list(job.choices.extra), job.train_arguments()
    what = f"{job.recipe.name} with {shlex.join(extra)} after --" if extra else job.recipe.name
    given = parse_by_fairseq(words, what)
    if not extra:
        return
    own = parse_by_fairseq(words[: -len(extra)], job.recipe.name)
    keys = [f"{group}.{option}" for group in TRAINING for option in job.recipe.config[group] if option != "_name"]
    for key in (*keys, *REMEDIES):
        option = key.partition(".")[2]
        if getattr(own, option, None) != getattr(given, option, None):
            remedy = REMEDIES.get(key, f"--set {key}=VALUE")
            raise RecipeError(
                f"{flag_of(option)} after --: results would name the recipe's {key}: give {remedy} instead"
            )


def parse_by_fairseq(words: Sequence[str], what: str) -> Namespace:
    """Parse a command line of fairseq-train.

    Raises:
        RecipeError: with ``what`` and fairseq's message.
    """
    from fairseq import options

    parser = options.get_training_parser()

    def refuse(message: str) -> NoReturn:
        raise RecipeError(f"{what}: {message}")

    parser.error = refuse
    return options.parse_args_and_arch(parser, without_user_dir(words))
