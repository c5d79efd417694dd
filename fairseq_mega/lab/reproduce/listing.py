"""The list of recipes: the progress of each, the paper's value, ours, and the remaining time."""

import math
import statistics
import textwrap
from itertools import groupby
from typing import TYPE_CHECKING, Dict, List, NamedTuple, Optional, Sequence

from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.recipes.paper_values import without_recipe
from fairseq_mega.lab.recipes.recipe import Recipe
from fairseq_mega.lab.runs.results import read_result
from fairseq_mega.lab.runs.text_tables import Table, terminal
from fairseq_mega.lab.runs.training_log import read_log

from .counts import Counts, counts_of
from .options import PROGRAM
from .settings import Choices

if TYPE_CHECKING:
    from .jobs import Job

COLUMNS = ("recipe", "state", "paper", "ours", "time left", "weights")
GPU_RATE = 40e12  # assumed operations per second: a quarter of an A100's peak in TF32
CORE_RATE = 25e9  # of a CPU's core: 22 to 39 were measured on an AMD EPYC, by the trainings of the miniature
WIDTH = 100  # of a line
FIRST = ("quickstart/", "miniature/")  # recipes for a first try
DAY, YEAR = 24 * 3600, 365 * 24 * 3600  # in seconds
GROUPS = {3600: "within an hour", DAY: "within a day", YEAR: "within a year", math.inf: "longer"}
LEGEND = (
    f"time left: of all seeds, one after the other; ~ is an estimate, at {GPU_RATE / 1e12:.0f} TFLOP/s a GPU (a "
    f"quarter of an A100's peak in TF32) or {CORE_RATE / 1e9:.0f} GFLOP/s a core",
    "ours: the mean, and the number of runs",
    "weights: whether the authors published theirs, which --checkpoint published scores",
)


class Row(NamedTuple):
    """A recipe in the list."""

    cells: List[str]  # of COLUMNS
    seconds: float  # left, of all seeds
    group: float  # of GROUPS


def listing(recipes: Sequence[Recipe], seeds: Sequence[int], choices: Choices, everything: bool) -> List[str]:
    """Return a line for each recipe, those first that this machine finishes first, and an explanation.

    Args:
        everything: whether recipes of more than a year are listed, and numbers without a recipe.
    """
    planned = jobs_there(recipes, seeds, choices)
    rows = [row(recipe, planned.get(recipe.name, []), choices) for recipe in recipes]
    rows.sort(key=lambda one: (one.group, *(not one.cells[0].startswith(name) for name in FIRST)))
    shown = [one for one in rows if everything or one.seconds <= YEAR]
    head, *lines = terminal(Table(COLUMNS, [one.cells for one in shown])).splitlines()
    found = [head]
    for group, members in groupby(zip(shown, lines), lambda pair: pair[0].group):
        found += [f"{GROUPS[group]}:", *(line for _, line in members)]
    notes = [*LEGEND]
    if everything and len(rows) == len(catalogue()):
        others = ", ".join(f"{name} ({number.reason})" for name, number in without_recipe().items())
        notes.append(f"without a recipe; the command names what to run instead: {others}")
    if len(shown) < len(rows):
        notes.append(
            f"{len(rows) - len(shown)} of {len(rows)} recipes take more than a year here: --all lists them, too"
        )
    unfinished = [one for one in shown if one.seconds]
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
    counts, metric = counts_of(recipe), next(iter(recipe.paper), "")
    begun = [(job, job.folder / "train.log") for job in jobs]
    logs = [(job, read_log(path)) for job, path in begun if path.exists()]
    results = [[read_result(path)["scores"] for path in job.result_files] for job in jobs]
    values = [value for found in results for value in [one[metric] for one in found if metric in one][-1:]]
    finished = sum((job.folder / ".done").is_dir() and bool(found) for job, found in zip(jobs, results))
    in_full = 1 if recipe.rate_updates else max(1, len(recipe.rates))  # trainings of a seed
    trainings = len(jobs) or len(recipe.seeds) * in_full
    updates = (jobs[0].updates if jobs else choices.max_update or recipe.updates) * trainings
    progress, done = "not begun", sum(min(job.updates, log.last_update) for job, log in logs)
    if not jobs and not recipe.measured:
        progress = "no data yet"
    elif jobs and finished == len(jobs):
        progress, done = "done", updates
    elif logs:
        progress = f"{finished} of {len(jobs)} seeds"
    rates = [rate for _, log in logs for rate in log.positive("ups")]
    rate = statistics.median(rates) if rates else None
    hours = recipe.config["optimization"].get("stop_time_hours")
    if hours and progress != "done":
        rate, seconds = None, 3600.0 * hours * trainings
    else:
        seconds = duration(recipe, counts, done, updates, rate, choices)
    paper = "/".join(f"{value:g}" for value in recipe.paper.values()) or ("plot" if counts.drawn else "-")
    ours = f"{statistics.mean(values):.2f} ({len(values)})" if values else "-"
    left = f"{'~' if rate is None and seconds else ''}{span(seconds)}"
    group = next(limit for limit in GROUPS if seconds <= limit)
    return Row(
        [recipe.name, progress, paper, ours, left, "yes" if recipe.report in recipe.weights else "-"], seconds, group
    )


def duration(recipe: Recipe, counts: Counts, done: int, updates: int, rate: Optional[float], choices: Choices) -> float:
    """Return the seconds of the rest of a training.

    Args:
        done, updates: number of updates so far and in all, of all seeds.
        rate: measured updates per second, if any.
    """
    if rate is not None:
        return (updates - done) / rate
    work = counts.operations * (updates - done) / (updates if recipe.measured else 1)
    gpus = min(choices.gpus, 1 if recipe.measured else recipe.gpus)
    return work / (GPU_RATE * gpus if choices.gpus > 0 else CORE_RATE * choices.workers)


def span(seconds: float) -> str:
    """A duration in the unit that suits it."""
    if seconds < 7200:
        return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:.1f} d"
