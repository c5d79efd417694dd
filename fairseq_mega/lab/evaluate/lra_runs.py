"""Runs of the Long Range Arena and of speech: their tasks, and whether they learned."""

import math
from typing import NamedTuple

from fairseq_mega.lab.recipes.catalogue import CLASSIFICATIONS
from fairseq_mega.lab.recipes.recipe import FOLDER, load
from fairseq_mega.lab.runs.results import Result

BENCHMARK = "lra"


class Task(NamedTuple):
    """A task with the settings of the paper's MEGA-chunk.

    Attributes:
        title: in tables.
        classes: number of classes.
        attention: attention function.
        chunk: length of a chunk.
        ema_dim: N of the moving average.
    """

    title: str
    classes: int
    attention: str
    chunk: int
    ema_dim: int


def read_task(task: str) -> Task:
    """Return a task with the settings of its recipe of MEGA-chunk."""
    name = "mega/table4/speech/base" if task == "speech" else f"mega/table2/{task}/mega_chunk"
    recipe = load(FOLDER / f"{name}.yaml")
    classes, cell = recipe.config["model"]["sentence_class_num"], recipe.cell
    return Task(CLASSIFICATIONS[task], classes, cell["attention"], cell["chunk"], cell["ema_dim"])


TASKS = {task: read_task(task) for task in CLASSIFICATIONS}
MOST_FREQUENT = {"listops": 17.0}  # per cent of the most frequent class, where classes have unequal shares
MARGIN = 4.0  # points above chance that show learning: more than chance variation on a validation set of 1,000 examples
LRA = [task for task in TASKS if task != "speech"]


def shortened(result: Result) -> bool:
    """Return whether a training had fewer updates than the paper's."""
    return bool(result["settings"]["updates"] < result["settings"]["published_updates"])


def chance_of(task: str) -> float:
    """Return the accuracy in per cent of the best guess without an input: the share of the most frequent class."""
    return MOST_FREQUENT.get(task, 100.0 / TASKS[task].classes)


def stuck(result: Result) -> bool:
    """Return whether a training never rose above chance; False for weights that were trained elsewhere."""
    reached = result["scores"].get("best_valid_accuracy", math.inf)
    return bool(reached < chance_of(result["settings"]["task"]) + MARGIN)


def scaling_of(result: Result) -> str:
    """Return the scaling of speech, for a title; empty if it is unknown (the authors' tensors)."""
    scaling = result["settings"].get("scaling")
    return f", scaled {scaling}" if scaling else ""
