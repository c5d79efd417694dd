"""MEGALODON's Figure 4: training speed beside a Llama-style Transformer with fused attention, over the context."""

import argparse
import re
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from fairseq_mega.lab.runs.plotting import COLOURS, SIZES, load_pyplot, save
from fairseq_mega.lab.runs.report import Report, add_drawing, given_results, show, warn_of_smoke
from fairseq_mega.lab.runs.results import ResultError
from fairseq_mega.lab.runs.text_tables import Table, table_of

Result = Dict[str, Any]
BENCHMARK = "megalodon-figure4"
BASE = "llama"
TITLES = {"megalodon": "MEGALODON", "llama": "Llama"}
# MEGALODON (Ma et al., NeurIPS 2024), section 4.1: "about 6%" slower at 4K, "about 32%" faster at 32K, on 256 A100.
PAPER = {4096: "about 0.94x", 32768: "about 1.32x"}
TOKENS = re.compile(r"L=(\d+) tokens_per_second")


class Point(NamedTuple):
    """Measurements of a model at one length."""

    tokens_per_second: float
    memory_mib: float
    parameters: int


def points_of(result: Result) -> Dict[int, Point]:
    """Return the measurements of a result by length, in rising order."""
    scores = result["scores"]
    lengths = sorted(int(found[1]) for found in map(TOKENS.fullmatch, scores) if found)
    return {
        length: Point(
            scores[f"L={length} tokens_per_second"],
            scores[f"L={length} memory_mib"],
            int(scores[f"L={length} parameters"]),
        )
        for length in lengths
    }


def by_size(results: Sequence[Result]) -> Dict[str, Dict[str, Dict[int, Point]]]:
    """Return measurements by size, model and length; of several results of one model the last."""
    found: Dict[str, Dict[str, Dict[int, Point]]] = {}
    for result in results:
        settings = result["settings"]
        found.setdefault(settings["task"], {})[settings["model"]] = points_of(result)
    return found


def table(results: Sequence[Result]) -> Table:
    """Return a row for each model and length, with its speed relative to the Llama-style model of the same size."""
    rows: List[Dict[str, str]] = []
    for size, models in by_size(results).items():
        for model, points in sorted(models.items()):
            for length, point in points.items():
                base = models.get(BASE, {}).get(length)
                ours = base is not None and model != BASE
                ratio = f"{point.tokens_per_second / base.tokens_per_second:.2f}x" if base and ours else "-"
                rows.append(
                    {
                        "MEGALODON, Figure 4": f"{size.upper()}, {TITLES[model]}",
                        "parameters": f"{point.parameters:,}",
                        "L": f"{length:,}",
                        "tokens/s of a device": f"{point.tokens_per_second:,.0f}",
                        "against Llama": ratio,
                        "paper, 7B": PAPER.get(length, "-") if ours else "-",
                        "peak MiB": f"{point.memory_mib:,.0f}",
                    }
                )
    return table_of(rows)


def plot(results: Sequence[Result], output: Path, source: Optional[str] = None) -> None:
    """Draw the speeds as bars, a panel for each size, to an image file, with ``source`` as in ``save``."""
    sizes = by_size(results)
    width, height = SIZES[min(len(sizes), max(SIZES))]
    grid = {"figsize": (width * len(sizes), height), "squeeze": False, "layout": "constrained"}
    figure, panels = load_pyplot().subplots(1, len(sizes), **grid)
    for panel, (size, models) in zip(panels[0], sizes.items()):
        lengths = sorted({length for points in models.values() for length in points})
        for number, (model, points) in enumerate(sorted(models.items())):
            places = [lengths.index(length) + 0.4 * (number - (len(models) - 1) / 2) for length in points]
            heights = [point.tokens_per_second for point in points.values()]
            style = {"label": TITLES[model], "color": COLOURS[list(TITLES).index(model)]}
            bars = panel.bar(places, heights, 0.38, **style)
            panel.bar_label(bars, [f"{height:,.0f}" for height in heights], fontsize=8)
        panel.set_xticks(range(len(lengths)), [f"{length:,}" for length in lengths])
        panel.set(title=size.upper() if len(sizes) > 1 else "", xlabel="context (tokens)")
        panel.set_ylabel("tokens per second of a device")
        panel.yaxis.set_major_formatter("{x:,g}")
        panel.margins(y=0.25)
        panel.legend(loc="upper center", ncols=len(models))
    save(figure, output, source)


def run(options: argparse.Namespace) -> None:
    """Print the speeds, and draw them.

    Raises:
        ResultError: if there is none.
    """
    results = given_results(options, BENCHMARK)
    if not results:
        raise ResultError(f"{options.results} has no measured speed: run the recipe megalodon/figure4")
    show(options, [table(results)], results)
    plot(results, options.output)
    print(f"plot: {options.output}")
    warn_of_smoke(options.smoke, "tiny models")


REPORT = Report("Plot MEGALODON's Figure 4: training speed over the context.", add_drawing, run)
