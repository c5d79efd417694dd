"""A plot of the operators' measurements: time per token over the sequence length, one panel per operator."""

import argparse
from pathlib import Path
from typing import Any, Dict, List, Optional

from fairseq_mega.lab.runs.plotting import load_pyplot, save
from fairseq_mega.lab.runs.report import Report
from fairseq_mega.lab.runs.results import read_result


def plot_rows(rows: List[Dict[str, Any]], output: Path, source: Optional[str] = None) -> None:
    """Draw the measured rows ("title", "path", "shape", "seconds") to an image file; both axes are logarithmic.

    ``source`` is for a picture that is kept, see :func:`fairseq_mega.lab.runs.plotting.save`.

    Raises:
        SystemExit: without matplotlib.
        ValueError: where no row holds a measurement.
    """
    pyplot = load_pyplot()
    measured = [row for row in rows if "seconds" in row]
    if not measured:
        raise ValueError("there is no measurement to plot")
    titles = list(dict.fromkeys(row["title"] for row in measured))
    columns = min(len(titles), 3)
    lines = -(-len(titles) // columns)
    figure, panels = pyplot.subplots(lines, columns, figsize=(3.6 * columns, 2.9 * lines), squeeze=False)
    for panel, title in zip(panels.flat, titles):
        here = [row for row in measured if row["title"] == title]
        for path in dict.fromkeys(row["path"] for row in here):
            points = sorted(
                (row["shape"]["length"], 1e9 * row["seconds"] / (row["shape"]["batch"] * row["shape"]["length"]))
                for row in here
                if row["path"] == path
            )
            panel.plot([x for x, _ in points], [y for _, y in points], marker="o", label=path)
        panel.set_title(title, fontsize="medium")
        panel.set(xlabel="L", ylabel="ns per token, both passes", yscale="log")
        panel.set_xscale("log", base=2)
        panel.grid(True, alpha=0.3)
        panel.legend(fontsize="x-small")
    for panel in panels.flat[len(titles) :]:
        panel.set_visible(False)
    save(figure, output, source)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``kernels``."""
    add = parser.add_argument
    add("--json", type=Path, required=True, help="result file of python -m fairseq_mega.lab.benchmarks kernels")
    add("--output", type=Path, required=True, help="image to write, for instance kernels.png")


def run(options: argparse.Namespace) -> None:
    """Draw the plot."""
    plot_rows(read_result(options.json)["rows"], options.output)


REPORT = Report("Plot the time per token of the operators over the sequence length.", add_options, run)
