"""Plot of decoding: tokens per second at several positions of a text, one line per model."""

import argparse
import re
from pathlib import Path
from typing import Dict, List, Tuple

from fairseq_mega.lab.runs.plotting import Line, Panel, draw_panels
from fairseq_mega.lab.runs.report import Report
from fairseq_mega.lab.runs.results import read_result


def speeds(scores: Dict[str, float]) -> Dict[str, List[Tuple[int, float]]]:
    """Return position and tokens per second of one text, by model, from the scores of a result file.

    Raises:
        ValueError: if there are none.
    """
    found: Dict[str, List[Tuple[int, float]]] = {}
    for name, value in scores.items():
        measured = re.fullmatch(r"(.+) position=(\d+) seconds", name)
        if measured is not None:
            found.setdefault(measured[1], []).append((int(measured[2]), 1.0 / value))
    if not found:
        raise ValueError("there is no measurement of decoding: give a file of the benchmark `decoding`")
    return {name: sorted(points) for name, points in found.items()}


def plot_speeds(scores: Dict[str, float], output: Path) -> None:
    """Draw the speeds to an image file; the axis of positions is logarithmic.

    Raises:
        SystemExit: without matplotlib.
        ValueError: if no score is of decoding.
    """
    lines = [Line(points, name) for name, points in speeds(scores).items()]
    axes = {
        "xlabel": "position in the text (tokens)",
        "ylabel": "tokens per second",
        "xscale": "symlog",
        "ylim": (0, None),
    }
    draw_panels([Panel(lines, axes)], output)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``decoding``."""
    add = parser.add_argument
    add("--json", type=Path, required=True, help="result file of python -m fairseq_mega.lab.benchmarks decoding")
    add("--output", type=Path, required=True, help="image to write, for instance decoding.png")


def run(options: argparse.Namespace) -> None:
    """Draw the plot."""
    plot_speeds(read_result(options.json)["scores"], options.output)


REPORT = Report("Plot the tokens per second of decoding at several positions of a text.", add_options, run)
