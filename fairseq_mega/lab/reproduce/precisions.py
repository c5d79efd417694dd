"""The precision of recipes that leave it to the machine, and of the lines that --print shows."""

from dataclasses import replace
from pathlib import Path
from typing import List, Sequence

import torch

from fairseq_mega.compat.features import precision
from fairseq_mega.lab.recipes.recipe import AUTO, Recipe
from fairseq_mega.lab.runs.files import write_text
from fairseq_mega.lab.runs.stages import say

from .choices import Choices


def chosen_once(file: Path, asked: str, gpus: int) -> str:
    """Return the precision that a file records; where there is no file, choose one and write it.

    A measurement decides, and the next one may differ; a second start goes on with the first one's.
    """
    if not file.exists():
        choice = precision.choose(asked, "cuda" if gpus else "cpu")
        say(f"precision: {choice.precision} ({choice.reason})")
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, choice.precision + "\n")
    return file.read_text(encoding="utf-8").strip()


def with_automatic(choices: Choices, recipes: Sequence[Recipe], begun: bool) -> Choices:
    """Return the choices with the precision for recipes that leave it to the machine.

    Args:
        begun: whether something is trained; otherwise nothing is written.
    """
    unseen = choices.gpus > 0 and not torch.cuda.is_available()  # a job's GPUs
    if (
        choices.precision is not None
        or choices.smoke
        or unseen
        or not any(recipe.precision == AUTO for recipe in recipes)
    ):
        return choices
    file = choices.out / ("precision.gpu" if choices.gpus else "precision.cpu")
    if begun or file.exists():
        return replace(choices, automatic=chosen_once(file, AUTO, choices.gpus))
    return replace(choices, automatic=precision.choose(AUTO, "cuda" if choices.gpus else "cpu").precision)


def option_of(recipe: Recipe) -> List[str]:
    """Return the words that give a line of fairseq-mega-train the precision that the runner uses on this machine."""
    if recipe.precision == AUTO:
        return ["--precision", AUTO]
    rounds = torch.cuda.is_available() and torch.cuda.get_device_capability() >= precision.AMPERE
    return ["--precision", "tf32"] if rounds else []
