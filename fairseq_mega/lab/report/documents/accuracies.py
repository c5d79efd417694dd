"""A plot of classifiers' validation accuracies, over updates and over hours of training."""

from pathlib import Path
from typing import List, Optional, Sequence

from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.runs.plotting import Line, Panel, draw_panels, height_limits, look
from fairseq_mega.lab.runs.results import Result

AXES = {"updates": "updates", "hours": "hours of training"}  # titles by the keys of a point


def name_of(result: Result) -> str:
    """Return the model of a training as its table has it, the peak rate, the seed and the processor."""
    settings = result["settings"]
    model = catalogue()[settings["recipe"]].number.rpartition(", ")[2]
    on = "CPU" if settings["trained_on"] == "cpu" else "GPU"
    return f"{model}, rate {settings['lr']:g}, seed {result['seed']}, {on}"


def plot(results: Sequence[Result], output: Path, source: Optional[str] = None) -> None:
    """Draw a panel over updates and one over hours to an image file, with ``source`` as in ``save``.

    A training without records of hours is in the first panel alone.
    """
    limits = height_limits([point["accuracy"] for result in results for point in result["curve"]])
    panels = []
    for key, title in AXES.items():
        lines: List[Line] = []
        for number, result in enumerate(results):
            points = [(point[key], point["accuracy"]) for point in result["curve"] if key in point]
            if points:
                lines.append(Line(points, name_of(result), look(number)))
        if lines:
            panels.append(Panel(lines, {"xlabel": title, "ylabel": "validation accuracy (%)", **limits}))
    draw_panels(panels, output, source=source)
