"""The list of recipes: the progress of each, the paper's value, ours, and the remaining time."""

import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Dict, List, Mapping, Optional, Sequence

from fairseq_mega.cli.progress import parse_statistics
from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.recipes.paper_values import without_recipe
from fairseq_mega.lab.recipes.recipe import Recipe
from fairseq_mega.lab.runs.results import read_result
from fairseq_mega.lab.runs.text_tables import Table, terminal

from .counts import Counts, bytes_of_job, counts_of, size_of
from .settings import Choices

if TYPE_CHECKING:
    from .jobs import Job

COLUMNS = ("recipe", "state", "paper", "ours", "disk", "time left", "authors' weights")
GPU_RATE = 40e12  # assumed operations per second: a quarter of an A100's peak in TF32
CORE_RATE = 25e9  # of a CPU's core: 22 to 39 were measured on an AMD EPYC, by the trainings of the miniature
RATES_SAID = (
    f"at {GPU_RATE / 1e12:.0f} TFLOP/s a GPU (a quarter of an A100's peak in TF32) or "
    f"{CORE_RATE / 1e9:.0f} GFLOP/s a core"
)


def listing(recipes: Sequence[Recipe], seeds: Sequence[int], choices: Choices) -> List[str]:
    """Return a line for each recipe, with a head and an explanation of the numbers."""
    planned = jobs_there(recipes, seeds, choices)
    rows = [row(recipe, planned.get(recipe.name, []), choices) for recipe in recipes]
    many = len({recipe.name for recipe in recipes})
    if many == len(catalogue()):
        for name, number in without_recipe().items():
            rows.append([name, number.reason, paper_cell(number.paper), *["-"] * (len(COLUMNS) - 3)])
    legend = (
        f"{many} recipes; disk: of the checkpoints of all seeds; time left: of all seeds one after the other, measured "
        f"here or estimated {RATES_SAID}; authors' weights: the archive that --checkpoint published reads, and the "
        f"estimated time of their scoring; for a number without a recipe the command names what to run instead"
    )
    return [*terminal(Table(COLUMNS, rows)).splitlines(), legend]


def jobs_there(recipes: Sequence[Recipe], seeds: Sequence[int], choices: Choices) -> Dict[str, "List[Job]"]:
    """Return the jobs of each recipe whose data are there; torch is imported for these alone."""
    elsewhere = choices.data or choices.data_dir or choices.processed or choices.released
    made = [choices.out / "runs", choices.out / "data", *(choices.root / recipe.place for recipe in recipes)]
    if not elsewhere and not any(place.exists() for place in made):
        return {}
    from .runner import jobs_there

    return jobs_there(recipes, seeds, choices)


def row(recipe: Recipe, jobs: "Sequence[Job]", choices: Choices) -> List[str]:
    """The cells of a recipe, whose jobs are empty where its data are not there."""
    counts = counts_of(recipe)
    paper = paper_cell(recipe.paper, "plot" if counts.drawn else "-")
    metric = next(iter(recipe.paper), None)
    values = [value for job in jobs for value in scores(job, metric)]
    logs = [job.folder / "train.log" for job in jobs if (job.folder / "train.log").exists()]
    trainings = len(jobs) or len(recipe.seeds) * max(1, len(recipe.rates))
    updates = (jobs[0].updates if jobs else choices.max_update or recipe.updates) * trainings
    progress = state(recipe, jobs)
    done = updates if progress == "done" else sum(map(updates_done, jobs))
    hours = recipe.config["optimization"].get("stop_time_hours")
    left = duration(recipe, counts, done, updates, logs, choices)
    if hours and progress != "done":
        left = f"{span(3600 * hours * trainings)} (estimated)"
    ours = f"{statistics.mean(values):.2f} ({len(values)})" if values else "-"
    archive, weights = recipe.weights.get(recipe.report), "-"
    if archive is not None:
        weights = f"{archive}, {'' if counts.scoring is None else span(counts.scoring / speed(choices, 1))}"
    size = len(recipe.seeds) * max(1, len(recipe.rates)) * bytes_of_job(recipe, recipe.config, counts.parameters)
    return [recipe.name, progress, paper, ours, size_of(size), left, weights]


def paper_cell(values: Mapping[str, float], without: str = "-") -> str:
    """Return the paper's values of a number, the first three of many; ``without`` values that text."""
    texts = [f"{value:g}" for value in values.values()]
    return "/".join(texts[:3]) + "/..." * (len(texts) > 3) if texts else without


def state(recipe: Recipe, jobs: "Sequence[Job]") -> str:
    """Return the progress of a recipe's seeds: "no data yet", "not begun", "1 of 3 seeds" or "done"."""
    if not jobs:
        return "not begun" if recipe.measured else "no data yet"
    finished = sum((job.folder / ".done").is_dir() and bool(job.result_files) for job in jobs)
    begun = sum((job.folder / "train.log").exists() for job in jobs)
    if finished == len(jobs):
        return "done"
    return f"{finished} of {len(jobs)} seeds" if begun else "not begun"


def scores(job: "Job", metric: Optional[str]) -> List[float]:
    """The values of a metric in the result files of a run; nothing where there is none yet."""
    found = (read_result(path)["scores"] for path in job.result_files)
    return [score[metric] for score in found if metric in score][-1:]


def updates_done(job: "Job") -> int:
    """Return the number of updates in the log of a training, 0 without a log."""
    log: Path = job.folder / "train.log"
    if not log.exists():
        return 0
    with log.open(encoding="utf-8", errors="replace") as lines:
        found = [parse_statistics(text).get("num_updates", 0) for text in lines if "| train_inner |" in text]
    return min(job.updates, max((int(float(number)) for number in found), default=0))


def measured_rate(logs: List[Path]) -> Optional[float]:
    """Updates per second, the median over the logged intervals of the trainings; None where there is none."""
    rates = []
    for log in logs:
        with log.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                found = parse_statistics(line) if "| train_inner |" in line else {}
                if float(found.get("ups", 0) or 0) > 0:
                    rates.append(float(found["ups"]))
    return statistics.median(rates) if rates else None


def speed(choices: Choices, gpus: int) -> float:
    """Return the assumed operations per second of at most some GPUs, or of the CPU."""
    return GPU_RATE * min(choices.gpus, gpus) if choices.gpus > 0 else CORE_RATE * choices.workers


def duration(recipe: Recipe, counts: Counts, done: int, updates: int, logs: List[Path], choices: Choices) -> str:
    """Return the estimated time of the rest of a training, and its source: a log, or the rates above.

    Args:
        done, updates: number of updates so far and in all, of all seeds.
        logs: of trainings with the same settings.
    """
    rate = measured_rate(logs)
    if rate is not None:
        return f"{span((updates - done) / rate)} (measured)"
    work = counts.operations * (updates - done)
    if recipe.measured:
        return f"{span(work / updates / speed(choices, 1))} (estimated)"
    return f"{span(work / speed(choices, recipe.gpus))} (estimated)"


def span(seconds: float) -> str:
    """A duration in the unit that suits it."""
    if seconds < 7200:
        return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:.1f} d"
