"""Runs of the Long Range Arena and of speech: their selection, and whether they learned."""

import math
from typing import Any, List, NamedTuple, Optional, Sequence

from fairseq_mega.lab.recipes.recipe import FOLDER, load
from fairseq_mega.lab.runs.results import Result, changes_of

BENCHMARK = "lra"


class Task(NamedTuple):
    """A task with the settings of the paper's MEGA-chunk.

    Attributes:
        title: in tables.
        classes: number of classes.
        attention: attention function.
        chunk: length of a chunk.
        ema_dim: N of the moving average.
        most_frequent: share of the most frequent class in per cent, where classes have unequal shares.
    """

    title: str
    classes: int
    attention: str
    chunk: int
    ema_dim: int
    most_frequent: Optional[float] = None


def of_recipe(title: str, name: str, most_frequent: Optional[float] = None) -> Task:
    """Return a task with the settings of a recipe of MEGA-chunk."""
    recipe = load(FOLDER / f"{name}.yaml")
    classes, cell = recipe.config["model"]["sentence_class_num"], recipe.cell
    return Task(title, classes, cell["attention"], cell["chunk"], cell["ema_dim"], most_frequent)


TASKS = {
    "listops": of_recipe("ListOps", "mega/table2/listops/mega_chunk", most_frequent=17.0),
    "text": of_recipe("Text", "mega/table2/text/mega_chunk"),
    "retrieval": of_recipe("Retrieval", "mega/table2/retrieval/mega_chunk"),
    "image": of_recipe("Image", "mega/table2/image/mega_chunk"),
    "pathfinder": of_recipe("Pathfinder", "mega/table2/pathfinder/mega_chunk"),
    "pathx": of_recipe("Path-X", "mega/table2/pathx/mega_chunk"),
    "speech": of_recipe("Speech", "mega/table4/speech/base"),
}
MARGIN = 4.0  # points above chance that show learning: more than chance variation on a validation set of 1,000 examples
LRA = [task for task in TASKS if task != "speech"]
REMEDY = (
    "Whether a run rises above chance can depend on the seed (google-research/long-range-arena#37): give further "
    "--seeds. If several runs stay at chance, lower the peak rate or lengthen the warm-up (state-spaces/s4#82), for "
    "instance with --set optimization.lr=0.002 --set lr_scheduler.warmup_updates=50000. Pathfinder and Path-X may "
    "need tens of epochs to rise above chance."
)


def select(results: Sequence[Result], **settings: Any) -> List[Result]:
    """Return the results whose settings have these values."""
    return [result for result in results if all(result["settings"][key] == settings[key] for key in settings)]


def mega(results: Sequence[Result], task: str, chunk: int, attention: str = "") -> List[Result]:
    """Return the results of MEGA with the paper's N and an attention function (default: the task's)."""
    function, ema_dim = attention or TASKS[task].attention, TASKS[task].ema_dim
    return select(results, task=task, model="mega", chunk=chunk, attention=function, ema_dim=ema_dim)


def shortened(result: Result) -> bool:
    """Return whether a training had fewer updates than the paper's."""
    return bool(result["settings"]["updates"] < result["settings"]["published_updates"])


def chance_of(task: str) -> float:
    """Return the accuracy in per cent of the best guess without an input: the share of the most frequent class."""
    share = TASKS[task].most_frequent
    return 100.0 / TASKS[task].classes if share is None else share


def stuck(result: Result) -> bool:
    """Return whether a training never rose above chance; False for weights that were trained elsewhere."""
    reached = result["scores"].get("best_valid_accuracy", math.inf)
    return bool(reached < chance_of(result["settings"]["task"]) + MARGIN)


def scaling_of(result: Result) -> str:
    """Return the scaling of speech, for a title; empty if it is unknown (the authors' tensors)."""
    scaling = result["settings"].get("scaling")
    return f", scaled {scaling}" if scaling else ""


def name_of(result: Result) -> str:
    """Return task and model of a result, and the changes of its recipe, without the seed."""
    settings = result["settings"]
    name = f"{settings['task']} {settings['model']}"
    if settings["model"] not in ("transformer", "s4d"):
        chunk = "full" if settings["chunk"] < 0 else f"C={settings['chunk']}"
        name += f" {settings['attention']} N={settings['ema_dim']} {chunk}{scaling_of(result)}"
    return f"{name} {changes_of(result)}".rstrip()
