"""The list of recipes: the progress of each, the paper's value, ours, and the remaining time."""

import statistics
from pathlib import Path
from typing import Dict, List, Mapping, Optional, Sequence

from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.recipes.paper_values import without_recipe
from fairseq_mega.lab.recipes.recipe import Recipe
from fairseq_mega.lab.runs.log_progress import parse_statistics
from fairseq_mega.lab.runs.results import read_result
from fairseq_mega.lab.runs.text_tables import Table, terminal

from .choices import Choices
from .datasets import is_there
from .estimates import RATES_SAID, duration, scoring, span
from .evaluating import result_files
from .runner import digest_of, folders, runs_of
from .runs import Run
from .storage import bytes_of_recipe, size_of
from .tables import is_drawn
from .weights import archive_of

COLUMNS = ("recipe", "state", "paper", "ours", "disk", "time left", "authors' weights")


def listing(recipes: Sequence[Recipe], seeds: Sequence[int], choices: Choices) -> List[str]:
    """Return a line for each recipe, with a head and an explanation of the numbers."""
    rows: List[List[str]] = []
    digests: Dict[str, Optional[str]] = {}
    places = folders(recipes, choices)
    for recipe in recipes:
        if recipe.measured:
            rows.append(row(recipe, runs_of([recipe], seeds, choices, {}), choices))
            continue
        place = recipe.place
        if place not in digests:
            there = choices.processed is not None or is_there(recipe, places[place])
            digests[place] = digest_of(recipe, places[place], choices) if there else None
        found = digests[place]
        runs = [] if found is None else runs_of([recipe], seeds, choices, {place: found})
        rows.append(row(recipe, runs, choices))
    many = len({recipe.name for recipe in recipes})
    if many == len(catalogue()):
        for name, number in without_recipe().items():
            rows.append([name, number.reason, paper_cell(number.paper), *["-"] * (len(COLUMNS) - 3)])
    said = (
        f"{many} recipes; disk: of the checkpoints of all seeds; time left: of all seeds one after the other, measured "
        f"here or estimated {RATES_SAID}; authors' weights: the archive that --checkpoint published takes, and the "
        f"estimated time of their scoring; for a number without a recipe the command names what to run instead"
    )
    return [*terminal(Table(COLUMNS, rows)).splitlines(), said]


def row(recipe: Recipe, runs: Sequence[Run], choices: Choices) -> List[str]:
    """The cells of a recipe, whose runs are empty where its data are not there."""
    paper = paper_cell(recipe.paper, "plot" if is_drawn(recipe) else "-")
    metric = next(iter(recipe.paper), None)
    values = [value for run in runs for value in scores(run, metric)]
    logs = [run.folder / "train.log" for run in runs if (run.folder / "train.log").exists()]
    trainings = len(runs) or len(recipe.seeds) * max(1, len(recipe.rates))
    updates = (runs[0].updates if runs else choices.max_update or recipe.updates) * trainings
    done = updates if state(runs) == "done" else sum(map(updates_done, runs))
    hours = recipe.config["optimization"].get("stop_time_hours")
    left = duration(recipe, done, updates, logs, choices.gpus, choices.workers)
    if hours and state(runs) != "done":
        left = f"{span(3600 * hours * trainings)} (estimated)"
    ours = f"{statistics.mean(values):.2f} ({len(values)})" if values else "-"
    archive = archive_of(recipe)
    weights = "-" if archive is None else f"{archive}, {scoring(recipe, choices.gpus, choices.workers)}"
    return [recipe.name, state(runs), paper, ours, size_of(bytes_of_recipe(recipe)), left, weights]


def paper_cell(values: Mapping[str, float], without: str = "-") -> str:
    """Return the paper's values of a number, the first three of many; ``without`` values that text."""
    texts = [f"{value:g}" for value in values.values()]
    return "/".join(texts[:3]) + "/..." * (len(texts) > 3) if texts else without


def state(runs: Sequence[Run]) -> str:
    """Return the progress of a recipe's seeds: "no data yet", "not begun", "1 of 3 seeds" or "done"."""
    if not runs:
        return "no data yet"
    finished = sum((run.folder / ".done").is_dir() and bool(result_files(run)) for run in runs)
    begun = sum((run.folder / "train.log").exists() for run in runs)
    if finished == len(runs):
        return "done"
    return f"{finished} of {len(runs)} seeds" if begun else "not begun"


def scores(run: Run, metric: Optional[str]) -> List[float]:
    """The values of a metric in the result files of a run; nothing where there is none yet."""
    found = (read_result(path)["scores"] for path in result_files(run))
    return [score[metric] for score in found if metric in score][-1:]


def updates_done(run: Run) -> int:
    """Return the number of updates in the log of a training, 0 without a log."""
    log: Path = run.folder / "train.log"
    if not log.exists():
        return 0
    with log.open(encoding="utf-8", errors="replace") as lines:
        found = [parse_statistics(text).get("num_updates", 0) for text in lines if "| train_inner |" in text]
    return min(run.updates, max((int(float(number)) for number in found), default=0))
