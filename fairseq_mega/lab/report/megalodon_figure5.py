"""MEGALODON's Figure 5: perplexity over the context."""

import argparse
from typing import List, Sequence, Tuple

from fairseq_mega.lab.runs.plotting import Line, Panel, draw_panels
from fairseq_mega.lab.runs.report import Report, add_drawing, given_results, show, warn_of_smoke
from fairseq_mega.lab.runs.results import Result, ResultError
from fairseq_mega.lab.runs.text_tables import Table


def curve(results: Sequence[Result]) -> List[Tuple[int, float]]:
    """Context in tokens and perplexity per token, in rising order."""
    return sorted((row["settings"]["exact_context"], row["scores"]["perplexity"]) for row in results)


def run(options: argparse.Namespace) -> None:
    """Print the curve, and draw it."""
    results = given_results(options, "megalodon-figure5")
    points = curve(results)
    if not points:
        raise ResultError(f"{options.results} has no result over contexts: run the recipe megalodon/figure5")
    rows = [[f"{context:,}", f"{score:.3f}"] for context, score in points]
    show(options, [Table(["MEGALODON, Figure 5, context", "test perplexity"], rows)], results)
    axes = {"xlabel": "context (tokens)", "ylabel": "test perplexity"}
    draw_panels([Panel([Line(points)], axes, base=2)], options.output)
    warn_of_smoke(options.smoke)


REPORT = Report("Plot MEGALODON's Figure 5: perplexity over the context.", add_drawing, run)
