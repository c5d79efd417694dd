"""Runs of the Long Range Arena and of speech: their choice, and whether they learned."""

import math
from functools import lru_cache
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.runs.results import Result, changes_of

BENCHMARK = "lra"


class Task(NamedTuple):
    """A task: its title, MEGA's attention function, the chunk of MEGA-chunk.

    ``most_frequent`` is the share of the most frequent class in per cent, where classes have unequal shares.
    """

    title: str
    attention: str
    chunk: int
    most_frequent: Optional[float] = None


TASKS = {
    "listops": Task("ListOps", "softmax", 128, most_frequent=17.0),
    "text": Task("Text", "softmax", 128),
    "retrieval": Task("Retrieval", "softmax", 128),
    "image": Task("Image", "laplace", 128),
    "pathfinder": Task("Pathfinder", "laplace", 128),
    "pathx": Task("Path-X", "laplace", 4096),
    "speech": Task("Speech", "laplace", 1000),
}
MARGIN = 4.0  # points above chance that show learning: more than a validation set of 1,000 examples gives by luck
LRA = [task for task in TASKS if task != "speech"]
EMA_DIM = 16
REMEDY = (
    "Whether a run leaves chance can depend on the seed (google-research/long-range-arena#37): give further --seeds. "
    "If several stay there, lower the peak rate or lengthen the warm-up (state-spaces/s4#82), for instance with "
    "--set optimization.lr=0.002 --set lr_scheduler.warmup_updates=50000. Pathfinder and Path-X may need tens of "
    "epochs to leave it."
)


def select(results: Sequence[Result], **settings: Any) -> List[Result]:
    """The results whose settings have these values."""
    return [result for result in results if all(result["settings"][key] == settings[key] for key in settings)]


def mega(results: Sequence[Result], task: str, chunk: int, attention: str = "", ema_dim: int = EMA_DIM) -> List[Result]:
    """Results of MEGA with an attention function (default: the task's)."""
    function = attention or TASKS[task].attention
    return select(results, task=task, model="mega", chunk=chunk, attention=function, ema_dim=ema_dim)


def shortened(result: Result) -> bool:
    """Return whether a training had fewer updates than the paper's."""
    return bool(result["settings"]["updates"] < result["settings"]["published_updates"])


@lru_cache(maxsize=None)
def classes_of_tasks() -> Dict[str, int]:
    """Return the number of classes of each task, from the recipes."""
    models = {recipe.cell.get("task"): recipe.config["model"] for recipe in catalogue().values()}
    return {task: int(models[task]["sentence_class_num"]) for task in TASKS}


def chance_of(task: str) -> float:
    """Accuracy in per cent of the best guess without an input: the share of the most frequent class."""
    share = TASKS[task].most_frequent
    return 100.0 / classes_of_tasks()[task] if share is None else share


def stuck(result: Result) -> bool:
    """Return whether a training never left chance; False for weights that were trained elsewhere."""
    reached = result["scores"].get("best_valid_accuracy", math.inf)
    return bool(reached < chance_of(result["settings"]["task"]) + MARGIN)


def scaling_of(result: Result) -> str:
    """The scaling of speech, for a title; empty where it is unknown (the authors' tensors)."""
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
