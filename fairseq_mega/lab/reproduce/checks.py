"""Checks before anything is made: GPUs, data, and options with which a result would name another training."""

from argparse import Namespace
from typing import Iterable, NoReturn, Sequence

from fairseq_mega.compat.features import precision
from fairseq_mega.lab.recipes.command_line import arguments, flag_of, without_user_dir
from fairseq_mega.lab.recipes.recipe import Recipe, RecipeError

from .data import Data
from .settings import OF_RUNS, Choices

TRAINING = ("model", "task", "criterion", "optimizer", "optimization", "lr_scheduler")  # groups of --set


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
    words = without_user_dir(arguments(recipe.config, recipe.preset))
    own = parse_by_fairseq(words, recipe)
    given = parse_by_fairseq([*words, *choices.extra], recipe)
    trained = [f"{group}.{option}" for group in TRAINING for option in recipe.config[group] if option != "_name"]
    half = [f"common.{name}" for names in precision.SETS.values() for name in names]
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


def check(data: Iterable[Data], choices: Choices, visible_gpus: int) -> None:
    """Check the GPUs and all data, so that an error of the last ones is raised before the first training.

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
    for one in data:
        try:
            one.check()
        except ValueError as error:
            problems.append(str(error))
    if problems:
        raise RecipeError("; ".join(problems))
