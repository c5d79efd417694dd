"""A plot of the operators' measurements: time per token over the sequence length, one panel per operator."""

import argparse
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

from fairseq_mega.lab.runs.plotting import Line, Panel, draw_panels, load_pyplot
from fairseq_mega.lab.runs.report import Report
from fairseq_mega.lab.runs.results import read_result


def plot_rows(rows: List[Dict[str, Any]], output: Path, source: Optional[str] = None) -> None:
    """Draw the measured rows ("title", "path", "shape", "seconds") to an image file; both axes are logarithmic.

    ``source`` is for a picture that is kept, see :func:`fairseq_mega.lab.runs.plotting.save`.

    Raises:
        SystemExit: without matplotlib.
        ValueError: where no row holds a measurement.
    """
    measured = [row for row in rows if "seconds" in row]
    if not measured:
        raise ValueError("there is no measurement to plot")
    panels = []
    for title in dict.fromkeys(row["title"] for row in measured):
        points: Dict[str, List[Tuple[float, float]]] = {}
        for row in measured:
            if row["title"] == title:
                batch, length = row["shape"]["batch"], row["shape"]["length"]
                points.setdefault(row["path"], []).append((length, 1e9 * row["seconds"] / (batch * length)))
        lines = [Line(sorted(found), path, {"marker": "o"}) for path, found in points.items()]
        axes = {"title": title, "xlabel": "L", "ylabel": "ns per token, both passes", "yscale": "log"}
        panels.append(Panel(lines, axes, base=2, legend={"fontsize": "x-small"}))
    columns = min(len(panels), 3)
    size = (3.6 * columns, 2.9 * -(-len(panels) // columns))
    with load_pyplot().rc_context({"axes.titlesize": "medium"}):
        draw_panels(panels, output, size, columns, source=source)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``kernels``."""
    add = parser.add_argument
    add("--json", type=Path, required=True, help="result file of python -m fairseq_mega.lab.benchmarks kernels")
    add("--output", type=Path, required=True, help="image to write, for instance kernels.png")


def run(options: argparse.Namespace) -> None:
    """Draw the plot."""
    plot_rows(read_result(options.json)["rows"], options.output)


REPORT = Report("Plot the time per token of the operators over the sequence length.", add_options, run)
