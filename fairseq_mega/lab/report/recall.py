"""Recall and state tracking of language models of equal size, from the files of their cells.

Each test split AXIS-N of a recipe is a point: N borders of chunks between what is asked for and the question, N pairs
of a sequence, or positions up to N of a longer sequence than in training.
"""

import re
import statistics
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Sequence

from fairseq_mega.lab.report.figures import Point, lines_of
from fairseq_mega.lab.report.numbers import FORMS, mean_and_deviation, pivot
from fairseq_mega.lab.runs.plotting import Panel
from fairseq_mega.lab.runs.results import Result, chosen_runs, read_results
from fairseq_mega.lab.runs.text_tables import Table, table_of

CELL = "cell"
SPLIT = re.compile(r"(\w+)-(\d+)_accuracy")
TITLES = FORMS["recall"].titles
AXES = {
    "borders": "borders of chunks of 16 between key and query",
    "pairs": "pairs of a sequence",
    "modulus2": "parity: positions up to (trained up to 64)",
    "modulus5": "sum modulo 5: positions up to (trained up to 64)",
}


class Trained(NamedTuple):
    """The trainings of a model on a task at its chosen learning rate."""

    task: str
    model: str
    parameters: int
    rate: float
    rates: List[float]  # that were tried
    runs: List[Dict[str, Any]]  # one of each seed

    @property
    def name(self) -> str:
        """Return the model in words."""
        return FORMS["recall"].title(self.model)

    def scores(self, metric: str) -> List[float]:
        """Return a score of each seed."""
        return [run["scores"][metric] for run in self.runs]


def trained(results: Sequence[Result]) -> List[Trained]:
    """Return the trainings of each recipe, in the order of the titles.

    Of several cells of a recipe, such as of all rates with one seed and of the chosen rate with more, the runs of the
    one with most seeds at its chosen rate count; of several such rates that of the best mean validation accuracy.
    """
    cells: Dict[str, List[Result]] = {}
    for result in results:
        cells.setdefault(result["settings"]["recipe"], []).append(result)
    found = []
    for own in cells.values():
        chosen = list(map(chosen_runs, own))
        means = [statistics.fmean(run["scores"]["best_valid_accuracy"] for run in runs) for runs in chosen]
        most = max(range(len(own)), key=lambda number: (len(chosen[number]), means[number]))
        settings = own[most]["settings"]
        rates = sorted({run["lr"] for one in own for run in one["runs"]})
        about = (settings["task"], settings["model"], settings["parameters"], settings["lr"], rates)
        found.append(Trained(*about, chosen[most]))
    return sorted(found, key=lambda one: list(TITLES).index(one.model))


def summary(models: Sequence[Trained]) -> Table:
    """Return a row for each training of a model: its size, its rates, its seeds and hours, its accuracy."""
    return table_of(
        [
            {
                "task": one.task,
                "model": one.name,
                "parameters": f"{one.parameters:,}",
                "learning rate": f"{one.rate:g} of {', '.join(f'{rate:g}' for rate in one.rates)}",
                "seeds": ", ".join(str(run["seed"]) for run in one.runs),
                "hours of a training": f"{statistics.fmean(run['training_hours'] for run in one.runs):.3f}",
                "accuracy": mean_and_deviation(one.scores("test_accuracy")),
            }
            for one in models
        ]
    )


def points(models: Sequence[Trained], axis: str) -> Iterator[Point]:
    """Yield the accuracies of each model and seed along an axis."""
    for one in models:
        for metric in one.runs[0]["scores"]:
            match = SPLIT.fullmatch(metric)
            if match and match[1] == axis:
                number = list(TITLES).index(one.model)
                yield from (Point(one.name, int(match[2]), score, number) for score in one.scores(metric))


def along(models: Sequence[Trained], axis: str) -> Table:
    """Return a row for each model, a column for each point of an axis."""
    found = list(points(models, axis))
    columns = [f"{x:,}" for x in sorted({point.x for point in found})]
    return pivot([({AXES[axis]: point.line}, f"{point.x:,}", point.y) for point in found], columns, 1, missing="-")


def panels(models: Sequence[Trained], axes: Sequence[str]) -> List[Panel]:
    """Return the accuracies along axes, with bands over the seeds."""
    drawn = []
    for axis in axes:
        found = list(points(models, axis))
        places = sorted({point.x for point in found})
        labels = {"xlabel": AXES[axis], "ylabel": "test accuracy (%)", "ylim": (0, 104)}
        drawn += [Panel(lines_of(found, places, True), labels, [f"{x:,}" for x in places])] if found else []
    return drawn


def of_task(folder: Path, words: Sequence[str]) -> List[Trained]:
    """Return the models of one task in a folder of cells."""
    name, task = words[:2]
    return [one for one in trained(read_results(folder / name, CELL)) if one.task == task]


TABLES = {
    "recall": lambda folder, words: summary(of_task(folder, words)),
    "recall-along": lambda folder, words: along(of_task(folder, words), words[2]),
}
