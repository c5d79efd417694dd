"""Options after ``--``, which are passed to fairseq-train: those that recipes set are refused, others are recorded."""

import argparse
import re
import shlex
from typing import Any, Dict, List, NamedTuple, Sequence

from fairseq_mega.compat.features import precision
from fairseq_mega.lab.recipes.command_line import flag_of
from fairseq_mega.lab.recipes.recipe import Recipe, RecipeError

from .revising import OF_RUNS, parse_by_fairseq

TRAINING = ("model", "task", "criterion", "optimizer", "optimization", "lr_scheduler")  # groups of --set
OTHER_REMEDIES = {
    **OF_RUNS,
    **{f"common.{name}": f"--precision {kind}" for kind, names in precision.SETS.items() for name in names},
    "optimization.max_update": "--max-update N",
}
OF_RUNNING = re.compile(  # options that change no number but those of time and memory
    "--(num-workers|data-buffer-size|batch-size-valid|max-tokens-valid|disable-validation|"
    "validate-.*|log-.*|tensorboard-logdir|wandb-project|azureml-logging|aim-.*|no-progress-bar|profile|"
    "save-interval.*|keep-.*|no-save.*|no-epoch-checkpoints|no-last-checkpoints|write-checkpoints-asynchronously|"
    "empty-cache-freq|checkpoint-activations|offload-activations|distributed-.*|ddp-.*|bucket-cap-mb"
    ")"
)
NUMBER = re.compile(r"-\.?\d")


class Given(NamedTuple):
    """An option as it is written, and its values."""

    option: str
    values: List[str]

    @property
    def words(self) -> List[str]:
        """The option and its values."""
        return [self.option, *self.values]


def split(words: Sequence[str]) -> List[Given]:
    """Group words of a command line by their options."""
    found: List[Given] = []
    for word in words:
        if word.startswith("-") and not NUMBER.match(word):
            option, equals, value = word.partition("=")
            found.append(Given(option, [value] if equals else []))
        elif found:
            found[-1].values.append(word)
        else:
            found.append(Given(word, []))
    return found


def changing(words: Sequence[str]) -> List[str]:
    """Return the words of those options that a number may depend on."""
    return [word for given in split(words) if not OF_RUNNING.fullmatch(given.option) for word in given.words]


def check_extra(recipe: Recipe, line: Sequence[str], extra: Sequence[str]) -> None:
    """Refuse options after ``--`` that fairseq-train lacks, that a recipe or an option of ours sets, or that save less.

    Less is saved where a checkpoint that the evaluation reads is missing.

    Args:
        line: arguments of fairseq-train for a run of the recipe, with ``extra``.

    Raises:
        RecipeError: naming the option and what to give in its place.
    """
    parser, _ = parse_by_fairseq(line, f"{recipe.name} with {shlex.join(extra)} after --")
    refused = refused_options(recipe, parser)
    needed = checkpoints_needed(recipe)
    for given in split(extra):
        if given.option in needed:
            raise RecipeError(
                f"{given.option} after --: the evaluation of {recipe.name} reads {needed[given.option]}: leave the "
                "option out"
            )
        key = refused.get(parser._option_string_actions.get(given.option))
        if key is not None:
            remedy = OTHER_REMEDIES.get(key) or shlex.join(["--set", f"{key}={text_of(given, recipe, key)}"])
            raise RecipeError(
                f"{' '.join(given.words)} after --: results would name the {key} of {recipe.name}, not this one: give "
                f"{remedy} before -- instead"
            )


def checkpoints_needed(recipe: Recipe) -> Dict[str, str]:
    """Return the options of fairseq-train that leave out or rename checkpoints of the evaluation, with these
    checkpoints.
    """
    evaluate = recipe.evaluate
    best, last = "the checkpoint of the best validation", "the last checkpoint"
    only_last = evaluate.get("checkpoint") == "last"
    found = dict.fromkeys(("--no-save", "--checkpoint-suffix"), last if only_last else best)
    if not only_last:
        found["--disable-validation"] = best
    if only_last or evaluate["kind"] == "images":
        found["--no-last-checkpoints"] = last
    if "average" in evaluate:
        epochs = f"the checkpoints of the last {evaluate['average']} epochs"
        found.update(dict.fromkeys(("--no-epoch-checkpoints", "--save-interval", "--keep-last-epochs"), epochs))
    return found


def refused_options(recipe: Recipe, parser: argparse.ArgumentParser) -> Dict[Any, str]:
    """Return the parser's options that are refused after ``--``, with their group and name in a recipe."""
    set_here = [f"{group}.{option}" for group in TRAINING for option in recipe.config[group] if option != "_name"]
    actions = {key: flag_of(key.partition(".")[2]) for key in [*set_here, *OTHER_REMEDIES]}
    known = parser._option_string_actions
    return {known[name]: key for key, name in actions.items() if name in known}


def text_of(given: Given, recipe: Recipe, key: str) -> str:
    """Return the values of an option as ``--set`` reads them."""
    group, _, option = key.partition(".")
    text = ", ".join(given.values) or "true"
    return f"[{text}]" if isinstance(recipe.config[group][option], list) and "," in text else text
