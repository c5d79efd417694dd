"""MEGA's Figure 5: the attention functions, and their validation curves on Pathfinder."""

from pathlib import Path
from typing import Dict, List, Sequence, Tuple

import torch

from fairseq_mega.lab.evaluate.lra_runs import Result, mega
from fairseq_mega.lab.report.lra_figure import figure_report
from fairseq_mega.lab.runs.plotting import Line, Panel, draw_panels, look
from fairseq_mega.ops.attention.reference import laplace


def functions() -> Dict[str, List[Tuple[float, float]]]:
    """Return points of the attention functions laplace and relu2, which are applied to each score.

    Source: MEGA, Eq. 16 and Figure 5.
    """
    x = torch.linspace(-1.0, 2.0, 301, dtype=torch.float64)
    values = {"laplace": laplace(x), "relu2": x.relu().square()}
    return {name: list(zip(x.tolist(), y.tolist())) for name, y in values.items()}


def figure5(results: Sequence[Result], chunk: int, output: Path) -> Tuple[List[str], List[Result]]:
    """Draw the functions, and one validation curve per seed of each; return lines and results as figure4.

    Raises:
        ValueError: if there is no result.
    """
    found = {function: mega(results, "pathfinder", chunk, function) for function in ("laplace", "relu2", "softmax")}
    used = [run for runs in found.values() for run in runs]
    if not used:
        raise ValueError(f"no result of MEGA on Pathfinder with --chunk {chunk}")
    left = [Line(points, name) for name, points in functions().items()]
    right = []
    lines = ["Pathfinder, validation accuracy: last, best, largest fall from one validation to the next"]
    for number, (function, runs) in enumerate(found.items()):
        for run in runs:
            curve = [(point["updates"], point["accuracy"]) for point in run["curve"]]
            accuracies = [accuracy for _, accuracy in curve]
            name = f"{function}, seed {run['seed']}"
            right.append(Line(curve, function, look(number)))
            fall = max((before - after for before, after in zip(accuracies, accuracies[1:])), default=0.0)
            lines.append(f"{name:<18} {accuracies[-1]:>7.2f} {max(accuracies):>7.2f} {max(fall, 0.0):>7.2f}")
    of_functions = {"xlabel": "score", "ylabel": "weight", "ylim": (-0.1, 2.1), "title": "attention functions"}
    of_training = {"xlabel": "updates", "ylabel": "validation accuracy (%)", "title": "Pathfinder"}
    panels = [Panel(left, of_functions), Panel(right, of_training)]
    draw_panels(panels, output)
    return lines, used


REPORT = figure_report(
    "Plot MEGA's Figure 5: validation curves on Pathfinder.",
    figure5,
    "attention chunk (default: -1, full attention)",
)
