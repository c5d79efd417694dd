"""--released: data of the Long Range Arena from its released archive, in place of generated ones."""

import importlib.util
from pathlib import Path
from typing import List

from fairseq_mega.lab.prepare.lra_archive import FOLDERS, TABLES, URL
from fairseq_mega.lab.recipes.recipe import RecipeError

from .choices import Choices

GENERATED_TOO = ("listops", "pathfinder32", "pathx")  # data sets with another folder for the released data
ARCHIVE = URL.rpartition("/")[2]


def is_released(dataset: str, choices: Choices) -> bool:
    """Return whether a data set is to be read from the archive."""
    return choices.released and not choices.smoke and dataset in FOLDERS


def released_name(dataset: str, name: str, choices: Choices) -> str:
    """Name of a data set's folder: generated data and released ones do not share one."""
    return f"{name}-released" if dataset in GENERATED_TOO and is_released(dataset, choices) else name


def archives_of(folder: Path, choices: Choices) -> Path:
    """The folder of the archive, beside those of all tasks."""
    return choices.archives or folder.parent / "archives"


def released_options(folder: Path, choices: Choices) -> List[str]:
    """Return the options with which the command that generates a data set reads the archive's files instead."""
    no_download = [] if choices.download else ["--no-download"]
    return ["--released", "--archives", str(archives_of(folder, choices)), *no_download]


def check_released(dataset: str, folder: Path, choices: Choices) -> None:
    """Raise a RecipeError if the archive can be neither found nor fetched, or its images cannot be read."""
    archive = archives_of(folder, choices) / ARCHIVE
    if not choices.download and not archive.exists():
        raise RecipeError(f"{archive} does not exist: fetch {URL}, or leave --no-download out")
    if dataset not in TABLES and importlib.util.find_spec("PIL") is None:
        raise RecipeError(
            f"the released images of {dataset} are PNG files: pip install pillow, or leave --released out"
        )
