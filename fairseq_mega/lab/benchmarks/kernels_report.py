"""Plot of the operators' measurements: time per token of both passes over the length, one panel per operator."""

import argparse
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

from fairseq_mega.lab.runs.plotting import Line, Panel, draw_panels
from fairseq_mega.lab.runs.report import Report
from fairseq_mega.lab.runs.results import read_result

BASELINES = ("DxNxL", "explicit", "torch")  # baselines of the benchmark: explicit, as published
COMPILED = ("blocks", "native", "scan", "fused")  # compiled paths; a CPU's first choice first


def by_kind(path: str) -> Tuple[bool, bool]:
    """Return the key that sorts compiled paths first and baselines last."""
    return path in BASELINES, path not in COMPILED


def plot_rows(rows: List[Dict[str, Any]], output: Path, source: Optional[str] = None) -> None:
    """Draw the measured rows ("title", "path", "shape", "seconds") to an image file; both axes are logarithmic.

    ``source`` is for a picture that is kept, see :func:`fairseq_mega.lab.runs.plotting.save`.

    Raises:
        SystemExit: without matplotlib.
    """
    measured = [row for row in rows if "seconds" in row]
    panels = []
    for title in dict.fromkeys(row["title"] for row in measured):
        points: Dict[str, List[Tuple[float, float]]] = {}
        for row in measured:
            if row["title"] == title:
                batch, length = row["shape"]["batch"], row["shape"]["length"]
                points.setdefault(row["path"], []).append((length, 1e6 * row["seconds"] / (batch * length)))
        lines = [Line(sorted(points[path]), path) for path in sorted(points, key=by_kind)]
        axes = {"title": title, "xlabel": "length L (tokens)", "ylabel": "time per token (µs)", "yscale": "log"}
        panels.append(Panel(lines, axes, base=2))
    draw_panels(panels, output, source=source)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``kernels``."""
    add = parser.add_argument
    add("--json", type=Path, required=True, help="result file of python -m fairseq_mega.lab.benchmarks kernels")
    add("--output", type=Path, required=True, help="image to write, for instance kernels.png")


def run(options: argparse.Namespace) -> None:
    """Draw the plot."""
    plot_rows(read_result(options.json)["rows"], options.output)


REPORT = Report("Plot the time per token of the operators over the sequence length.", add_options, run)
