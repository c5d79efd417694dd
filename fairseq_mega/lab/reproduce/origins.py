"""The origin of existing data by the record of fairseq-mega-prepare: data of a recipe, and others."""

import json
from pathlib import Path
from typing import Any, Dict, List

from fairseq_mega.lab.prepare.command import build_parser
from fairseq_mega.lab.prepare.making import settings_of
from fairseq_mega.lab.prepare.registry import DATASETS as PREPARED
from fairseq_mega.lab.prepare.work_folder import SOURCE
from fairseq_mega.lab.recipes.recipe import RecipeError

from .choices import Choices
from .datasets import DATASETS, PREPARE, OwnExamples
from .lra_archive import is_released
from .runs import Run

# Data of other seeds and of the archive are a recipe's, too; results record the scaling of speech.
FREE = {"dataset", "seed", "released", "scaling"}


def is_generated(folder: Path) -> bool:
    """Return whether the data of a folder were generated, by its record."""
    return str(source_of(folder).get("origin", "")).startswith("generated")


def data_of(run: Run, choices: Choices) -> str:
    """Return the origin of a run's data for its result: generated, released, random, or made up for a smoke run."""
    if run.smoke:
        return "made up"
    if run.recipe.measured:
        return "random tokens"
    if choices.processed is not None:
        return "released, processed by the authors"
    return "generated" if is_generated(run.data) else "released"


def source_of(folder: Path) -> Dict[str, Any]:
    """Return the record of fairseq-mega-prepare on the data in a folder; empty where there is none.

    Raises:
        RecipeError: if the note is damaged.
    """
    source = (folder.parent if folder.name == "data-bin" else folder) / SOURCE
    try:
        found = json.loads(source.read_text(encoding="utf-8")) if source.is_file() else {}
    except ValueError as error:
        raise RecipeError(f"{source} is damaged ({error}): make the data again, or remove the file") from error
    if not isinstance(found, dict):
        raise RecipeError(f"{source} is damaged: make the data again, or remove the file")
    return found


def check_origin(name: str, folder: Path, choices: Choices) -> None:
    """Raise a RecipeError if a folder has other data than a run requires: made-up, generated or smaller ones.

    Args:
        name: of the data set, a key of DATASETS.
    """
    settings = source_of(folder).get("settings")
    settings = settings if isinstance(settings, dict) else {}
    if not choices.smoke and settings.get("smoke"):
        raise RecipeError(f"{folder} holds data that --smoke made up: give another folder, remove it, or add --smoke")
    if is_released(name, choices) and is_generated(folder):
        raise RecipeError(f"{folder} holds generated data: give another folder, or leave --released out")
    other = [] if choices.smoke else other_settings(name, settings, folder, choices)
    if other:
        raise RecipeError(
            f"{folder} holds other data than the recipe's, made with {', '.join(other)}: give another folder, in which "
            "the recipe's are made, or train on these by the line that --print shows"
        )


def other_settings(name: str, settings: Dict[str, Any], folder: Path, choices: Choices) -> List[str]:
    """List the options that data were made with and that are not those of a recipe's data set; not the raw files."""
    command = DATASETS[name].command(folder, choices)[len(PREPARE) :]
    if isinstance(DATASETS[name], OwnExamples) or settings.get("dataset") != command[0]:
        return []
    wanted = settings_of(PREPARED[command[0]], build_parser().parse_args(command))
    return [
        f"--{key.replace('_', '-')} {value} in place of {wanted.get(key, 'none')}"
        for key, value in sorted(settings.items())
        if key not in FREE and not is_input(value) and value != wanted.get(key)
    ]


def is_input(value: Any) -> bool:
    """Return whether a setting is about source files of the data."""
    return any(isinstance(entry, dict) for entry in (value if isinstance(value, list) else [value]))
