"""MEGA's Figure 4: accuracy over the EMA's dimensions and over the chunk."""

import statistics
import sys
from pathlib import Path
from typing import Dict, List, Sequence, Tuple

from fairseq_mega.lab.evaluate.lra_runs import TASKS, Result, select
from fairseq_mega.lab.report.lra_cells import mean_and_deviation
from fairseq_mega.lab.report.lra_figure import figure_report
from fairseq_mega.lab.runs.plotting import Line, Panel, draw_panels

Points = Dict[int, List[Result]]
EMA_DIM = TASKS["text"].ema_dim  # the same for Image


def over(results: Sequence[Result], task: str, axis: str, fixed: int) -> Points:
    """Return results of a task's MEGA by ``axis``, "ema_dim" or "chunk", in rising order (full attention last).

    ``fixed`` is the value of the other axis.
    """
    other = "chunk" if axis == "ema_dim" else "ema_dim"
    found = select(results, task=task, model="mega", attention=TASKS[task].attention, **{other: fixed})
    values = sorted({run["settings"][axis] for run in found}, key=lambda value: value if value >= 0 else sys.maxsize)
    return {value: select(found, **{axis: value}) for value in values}


def label_of(value: int) -> str:
    """Return the label of a value on an axis."""
    return "full" if value < 0 else str(value)


def figure4(results: Sequence[Result], chunk: int, output: Path) -> Tuple[List[str], List[Result]]:
    """Draw both panels; return the numbers as lines, and the results in them.

    Raises:
        ValueError: if there is none.
    """
    lines: List[str] = []
    used: List[Result] = []
    panels = []
    for axis, title, fixed in (
        ("ema_dim", f"EMA dimensions N ({'full attention' if chunk < 0 else f'C = {chunk}'})", chunk),
        ("chunk", f"chunk C (N = {EMA_DIM})", EMA_DIM),
    ):
        curves = {task: over(results, task, axis, fixed) for task in ("text", "image")}
        panels.append((title, curves))
        lines += [f"{title}: test accuracy"]
        for task, points in curves.items():
            for value, runs in points.items():
                accuracy = mean_and_deviation([run["scores"]["test_accuracy"] for run in runs])
                lines.append(f"{TASKS[task].title:>8} {label_of(value):>6} {accuracy}")
                used += [run for run in runs if run not in used]
    if not used:
        raise ValueError(f"no result of MEGA on Text or Image with --chunk {chunk} or N = {EMA_DIM}")
    drawn = []
    for title, curves in panels:
        # Evenly spaced, because 0 and "full" have no place on a logarithmic axis.
        ticks = sorted({value for points in curves.values() for value in points}, key=lambda v: v if v >= 0 else 1e9)
        lines_of_tasks = []
        for task, points in curves.items():
            if not points:
                continue
            means = [statistics.mean(r["scores"]["test_accuracy"] for r in runs) for runs in points.values()]
            places = [ticks.index(value) for value in points]
            lines_of_tasks.append(Line(list(zip(places, means)), TASKS[task].title))
        axes = {"xlabel": title, "ylabel": "test accuracy (%)"}
        if lines_of_tasks:
            drawn.append(Panel(lines_of_tasks, axes, list(map(label_of, ticks))))
    draw_panels(drawn, output)
    return lines, used


REPORT = figure_report(
    "Plot MEGA's Figure 4: accuracy over the EMA's dimensions and over the chunk.",
    figure4,
    "of the left panel (default: -1, full attention)",
)
