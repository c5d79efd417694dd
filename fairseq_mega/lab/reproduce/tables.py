"""The tables and figures at the end of a command, with the options for them from its own."""

import shutil
from pathlib import Path
from typing import Dict, Sequence

from fairseq_mega.lab.recipes.recipe import Recipe
from fairseq_mega.lab.report.command import REPORTS
from fairseq_mega.lab.report.command import main as report
from fairseq_mega.lab.report.papers import PAPER_TABLES, SpeedColumns
from fairseq_mega.lab.runs.commands import PYTHON, execute
from fairseq_mega.lab.runs.stages import stage

from .jobs import Job
from .results import table_folder
from .settings import Choices

SPEED = "speed.json"  # result file of the benchmark of training


def is_drawn(recipe: Recipe) -> bool:
    """Return whether the report of a recipe is a plot."""
    return recipe.report in REPORTS and REPORTS[recipe.report].drawn


def print_tables(jobs: Sequence[Job], failed: Sequence[str], choices: Choices, speed: bool = True) -> int:
    """Print the reports of all runs, one after the other; return the worst exit status.

    A report without a result, as all its runs failed, is omitted.

    Args:
        speed: whether to measure speed and memory for a table that has them.
    """
    status = 0
    for name in dict.fromkeys(job.recipe.report for job in jobs):
        members = [job for job in jobs if job.recipe.report == name]
        folder = table_folder(members, choices)
        if any(folder.iterdir()) or not all(job.name in failed for job in members):
            status = max(status, print_report(members, folder, choices, speed))
    return status


def print_report(jobs: Sequence[Job], folder: Path, choices: Choices, speed: bool) -> int:
    """Print the table or plot the figure of some runs from the results in a folder; return the exit status."""
    recipe = jobs[0].recipe
    output = ["--output", str(choices.out / f"{recipe.report}.png")]
    columns = PAPER_TABLES[recipe.report].speed if recipe.report in PAPER_TABLES else None
    if columns is not None:
        measure_speed(columns, choices, [job.recipe for job in jobs] if speed else [])
        if (choices.out / SPEED).exists():
            shutil.copy(choices.out / SPEED, folder)
    smoke = ["--smoke"] if choices.smoke else []
    return report([recipe.report, str(folder), *smoke, *(output if is_drawn(recipe) else [])])


def measure_speed(columns: SpeedColumns, choices: Choices, recipes: Sequence[Recipe]) -> None:
    """Measure training speed and memory for a table, if a recipe with these columns is among those of the job."""
    own = any(columns.cell.items() <= recipe.cell.items() for recipe in recipes)
    if own and not choices.smoke:
        where = "cuda" if choices.gpus else "cpu"
        words = [*PYTHON, "fairseq_mega.lab.benchmarks", *columns.benchmark, "--json", str(choices.out / SPEED)]
        nothing: Dict[str, str] = {}
        log = choices.out / "speed.log"
        stage(choices.out, f"speed.{where}", lambda: execute([*words, "--device", where], log, nothing))
