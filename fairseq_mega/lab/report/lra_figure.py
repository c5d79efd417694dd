"""Plot of results of the Long Range Arena as a report."""

import argparse
from pathlib import Path
from typing import Callable, List, Sequence, Tuple

from fairseq_mega.lab.evaluate.lra_runs import BENCHMARK, Result
from fairseq_mega.lab.report.alike import read_alike
from fairseq_mega.lab.report.lra_cells import notes, run_lines
from fairseq_mega.lab.runs.report import Report, add_drawing, warn_of_smoke
from fairseq_mega.lab.runs.results import is_trained_here

Draw = Callable[[Sequence[Result], int, Path], Tuple[List[str], List[Result]]]


def figure_report(description: str, draw: Draw, chunk_help: str) -> Report:
    """Return the report of a plot.

    Args:
        description: for the help.
        draw: plots results for an attention chunk to a file; returns the lines to print and the results in the plot.
        chunk_help: help of the option --chunk.
    """

    def add_options(parser: argparse.ArgumentParser) -> None:
        add_drawing(parser)
        parser.add_argument("--chunk", type=int, default=-1, help=chunk_help)

    def run(options: argparse.Namespace) -> None:
        results = list(filter(is_trained_here, read_alike(options, BENCHMARK)))
        lines, used = draw(results, options.chunk, options.output)
        print("\n".join([*lines, *run_lines(used), *notes(used), f"plot: {options.output}"]))
        warn_of_smoke(options.smoke)

    return Report(description, add_options, run)
