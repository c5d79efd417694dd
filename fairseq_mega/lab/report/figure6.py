"""Plot perplexity over the context and over the chunk size, from the result files of evaluate_lm (MEGA, Figure 6)."""

import argparse
from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple

from fairseq_mega.lab.runs.plotting import Line, Panel, draw_panels
from fairseq_mega.lab.runs.report import Report
from fairseq_mega.lab.runs.results import read_results

Points = List[Tuple[float, float]]


def curves(results: Sequence[Dict[str, Any]], chunk: int, segments: int) -> Tuple[Points, Points]:
    """Return (mean segment, perplexity) at one chunk, and (chunk, perplexity) at one number of segments, in rising
    order.

    Raises:
        ValueError: if the results are of several models.
    """
    models = sorted({(result["label"], str(result["settings"].get("checkpoint_sha256"))) for result in results})
    if len(models) > 1:
        names = ", ".join(f"{label} ({checkpoint[:8]})" for label, checkpoint in models)
        raise ValueError(
            f"the results are of several models, {names}: choose one with --label, or remove the other results"
        )
    rows = [(result["settings"], result["scores"]["perplexity"]) for result in results]
    context = [(row["mean_segment"], score) for row, score in rows if row.get("chunk_size") == chunk]
    chunks = [(row["chunk_size"], score) for row, score in rows if row.get("segments") == segments]
    return sorted(context), sorted(chunks)


def plot(context: Points, chunks: Points, output: Path) -> None:
    """Draw both curves side by side to an image file."""
    wide = max(x for x, _ in context) > 20 * min(x for x, _ in context)
    panels = []
    for points, title, scale in (
        (context, "context (tokens of a segment, mean)", "log" if wide else "linear"),
        (chunks, "chunk (tokens)", "linear"),
    ):
        axes = {"xlabel": title, "ylabel": "test perplexity", "xscale": scale}
        panels.append(Panel([Line(points)], axes))
    draw_panels(panels, output)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``figure6``."""
    add = parser.add_argument
    add("results", type=Path, help="folder of result files")
    add("--benchmark", default="figure6", help="name in the result files (default: figure6)")
    add("--label", help="name of the model in the result files (default: the only one)")
    add("--chunk", type=int, required=True, help="chunk of the left panel")
    add("--segments", type=int, required=True, help="segments of the right panel")
    add("--output", type=Path, required=True, help="image to write")


def run(options: argparse.Namespace) -> None:
    """Print the numbers of both curves, and draw them."""
    results = read_results(options.results, options.benchmark)
    chosen = [result for result in results if options.label in (None, result["label"])]
    context, chunks = curves(chosen, options.chunk, options.segments)
    for option, value, points in (("--chunk", options.chunk, context), ("--segments", options.segments, chunks)):
        if not points:
            raise ValueError(f"{option} {value}: {options.results} has no such result")
    for title, points in (("context", context), ("chunk size", chunks)):
        print(f"{title:>12} perplexity")
        print("\n".join(f"{x:>12,.0f} {y:>10.3f}" for x, y in points))
    plot(context, chunks, options.output)
    print(f"plot: {options.output}")


REPORT = Report("Plot MEGA's Figure 6: perplexity over the context and over the chunk.", add_options, run)
