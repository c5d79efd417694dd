"""The list of recipes: the progress of each, the paper's value, ours, and an estimate of the remaining time."""

import math
import statistics
import textwrap
from itertools import groupby
from typing import TYPE_CHECKING, Dict, List, NamedTuple, Sequence

from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.recipes.paper_values import without_recipe
from fairseq_mega.lab.recipes.recipe import Recipe
from fairseq_mega.lab.runs.results import read_result
from fairseq_mega.lab.runs.text_tables import Table, terminal

from .counts import operations_of
from .options import PROGRAM
from .settings import Choices

if TYPE_CHECKING:
    from .jobs import Job

COLUMNS = ("recipe", "state", "paper", "ours", "time left", "weights")
GPU_RATE = 40e12  # assumed operations per second: a quarter of an A100's peak in TF32
CORE_RATE = 25e9  # of a CPU's core: 22 to 39 were measured on an AMD EPYC, by the trainings of the miniature
WIDTH = 100  # of a line
FIRST = ("quickstart/", "miniature/")  # recipes for a first try
HOUR, DAY, YEAR = 3600, 24 * 3600, 365 * 24 * 3600  # in seconds
GROUPS = {HOUR: "within an hour", DAY: "within a day", YEAR: "within a year", math.inf: "longer"}
LEGEND = (
    f"time left: an estimate for the seeds that are not done, one after the other, at {GPU_RATE / 1e12:.0f} TFLOP/s a "
    f"GPU (a quarter of an A100's peak in TF32) or {CORE_RATE / 1e9:.0f} GFLOP/s a core",
    "ours: the mean, and the number of runs",
    "weights: whether the authors published theirs, which --checkpoint published scores",
)


class Row(NamedTuple):
    """A recipe in the list."""

    cells: List[str]  # of COLUMNS
    seconds: float  # left, of all seeds

    @property
    def group(self) -> float:
        """The one of GROUPS that the row belongs to."""
        return next(limit for limit in GROUPS if self.seconds <= limit)


def listing(recipes: Sequence[Recipe], seeds: Sequence[int], choices: Choices) -> List[str]:
    """Return a line for each recipe, those first that this machine finishes first, and an explanation."""
    planned = jobs_there(recipes, seeds, choices)
    rows = [row(recipe, planned.get(recipe.name, []), choices) for recipe in recipes]
    rows.sort(key=lambda one: (one.group, *(not one.cells[0].startswith(name) for name in FIRST)))
    head, *lines = terminal(Table(COLUMNS, [one.cells for one in rows])).splitlines()
    found, notes = [head], [*LEGEND]
    for group, members in groupby(zip(rows, lines), lambda pair: pair[0].group):
        found += [f"{GROUPS[group]}:", *(line for _, line in members)]
    if len(rows) == len(catalogue()):
        others = ", ".join(f"{name} ({number.reason})" for name, number in without_recipe().items())
        notes.append(f"without a recipe; the command names what to run instead: {others}")
    unfinished = [one for one in rows if one.seconds]
    if unfinished:
        name = min(unfinished, key=lambda one: one.seconds).cells[0]
        notes.append(f"begin with: {PROGRAM} {name}{' --gpus 0' if choices.gpus == 0 else ''}")
    return [*found, "", *(line for note in notes for line in textwrap.wrap(note, WIDTH, break_on_hyphens=False))]


def jobs_there(recipes: Sequence[Recipe], seeds: Sequence[int], choices: Choices) -> Dict[str, "List[Job]"]:
    """Return the jobs of each recipe whose data are there; torch is imported for these alone."""
    made = [choices.out / "runs", choices.out / "data", *(choices.root / recipe.place for recipe in recipes)]
    if choices.data is None and not any(place.exists() for place in made):
        return {}
    from .runner import jobs_there

    return jobs_there(recipes, seeds, choices)


def row(recipe: Recipe, jobs: "Sequence[Job]", choices: Choices) -> Row:
    """Return the row of a recipe, whose jobs are empty where its data are not there."""
    metric = next(iter(recipe.paper), "")
    results = [[read_result(path)["scores"] for path in job.result_files] for job in jobs]
    values = [value for found in results for value in [one[metric] for one in found if metric in one][-1:]]
    finished = sum((job.folder / ".done").is_dir() and bool(found) for job, found in zip(jobs, results))
    trainings = len(jobs) or len(recipe.seeds) * (1 if recipe.rate_updates else max(1, len(recipe.rates)))
    progress = "not begun" if jobs or recipe.measured else "no data yet"
    if jobs and finished == len(jobs):
        progress = "done"
    elif any((job.folder / "train.log").exists() for job in jobs):
        progress = f"{finished} of {len(jobs)} seeds"
    updates = jobs[0].updates if jobs else choices.max_update or recipe.updates
    seconds = (trainings - finished) * duration(recipe, updates, choices)
    paper = "/".join(f"{value:g}" for value in recipe.paper.values()) or ("plot" if "/figure" in recipe.name else "-")
    ours = f"{statistics.mean(values):.2f} ({len(values)})" if values else "-"
    weights = "yes" if recipe.report in recipe.weights else "-"
    return Row([recipe.name, progress, paper, ours, f"{'~' if seconds else ''}{span(seconds)}", weights], seconds)


def duration(recipe: Recipe, updates: int, choices: Choices) -> float:
    """Return the estimated seconds of a training of some updates, or of a measurement of speed."""
    hours = recipe.config["optimization"].get("stop_time_hours")
    if hours:
        return HOUR * float(hours)
    operations = operations_of(recipe) * (1 if recipe.measured else updates)
    gpus = min(choices.gpus, 1 if recipe.measured else recipe.gpus)
    return operations / (GPU_RATE * gpus if gpus else CORE_RATE * choices.workers)


def span(seconds: float) -> str:
    """A duration in the unit that suits it."""
    if seconds < 2 * HOUR:
        return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
    return f"{seconds / HOUR:.1f} h" if seconds < 2 * DAY else f"{seconds / DAY:.1f} d"
