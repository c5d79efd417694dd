"""Runs of the Long Range Arena and of speech: which there are, and whether they learned."""

import math
from typing import Any, List, NamedTuple, Sequence

from fairseq_mega.lab.runs.results import Result

BENCHMARK = "lra"


class Task(NamedTuple):
    """A task: its title, MEGA's attention function, the chunk of MEGA-chunk, and the accuracy that shows learning.

    Below ``learned`` per cent of the validation set a run has not left chance: a tenth or a half, a few points for
    what the classes' unequal shares give (the most frequent of ListOps has a sixth of the examples).
    """

    title: str
    attention: str
    chunk: int
    learned: float


TASKS = {
    "listops": Task("ListOps", "softmax", 128, 20.0),
    "text": Task("Text", "softmax", 128, 54.0),
    "retrieval": Task("Retrieval", "softmax", 128, 54.0),
    "image": Task("Image", "laplace", 128, 14.0),
    "pathfinder": Task("Pathfinder", "laplace", 128, 54.0),
    "pathx": Task("Path-X", "laplace", 4096, 54.0),
    "speech": Task("Speech", "laplace", 1000, 14.0),
}
LRA = [task for task in TASKS if task != "speech"]
EMA_DIM = 16
REMEDY = (
    "Whether a run leaves chance can depend on the seed (google-research/long-range-arena#37): give further --seeds. "
    "If several stay there, lower the peak rate or lengthen the warm-up (state-spaces/s4#82), for instance with "
    "-- --lr 0.004 --warmup-updates 50000 and another --out. Pathfinder and Path-X may need tens of epochs to leave it."
)


def select(results: Sequence[Result], **settings: Any) -> List[Result]:
    """The results whose settings have these values."""
    return [result for result in results if all(result["settings"][key] == settings[key] for key in settings)]


def mega(results: Sequence[Result], task: str, chunk: int, attention: str = "", ema_dim: int = EMA_DIM) -> List[Result]:
    """Results of MEGA with an attention function (default: the task's)."""
    function = attention or TASKS[task].attention
    return select(results, task=task, model="mega", chunk=chunk, attention=function, ema_dim=ema_dim)


def shortened(result: Result) -> bool:
    """Whether a training had fewer updates than the paper's."""
    return bool(result["settings"]["updates"] < result["settings"]["published_updates"])


def stuck(result: Result) -> bool:
    """Return whether a training never left chance; of weights that were trained elsewhere nobody saw it."""
    return bool(result["scores"].get("best_valid_accuracy", math.inf) < TASKS[result["settings"]["task"]].learned)


def scaling_of(result: Result) -> str:
    """The scaling of speech, for a title; nothing where it is not known (the authors' tensors)."""
    scaling = result["settings"].get("scaling")
    return f", scaled {scaling}" if scaling else ""


def name_of(result: Result) -> str:
    """Task and model of a result, without the seed."""
    settings = result["settings"]
    if settings["model"] in ("transformer", "s4d"):
        return f"{settings['task']} {settings['model']}"
    chunk = "full" if settings["chunk"] < 0 else f"C={settings['chunk']}"
    name = f"{settings['task']} {settings['model']} {settings['attention']} N={settings['ema_dim']} {chunk}"
    return name + scaling_of(result)
