"""MEGALODON's Tables 5 and 8 and Figure 5: language models on PG-19 and WikiText-103, beside the paper's numbers."""

import argparse
from functools import partial
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence, Tuple

from fairseq_mega.lab.recipes.published import paper_values
from fairseq_mega.lab.report.paper_table import PaperTable, Rows
from fairseq_mega.lab.runs.plotting import Line, Panel, draw_panels
from fairseq_mega.lab.runs.report import Report, add_results, given_results, show, warn_of_smoke
from fairseq_mega.lab.runs.results import ResultError
from fairseq_mega.lab.runs.text_tables import Table

INTERPRETATION = "measured rows: our interpretation of what the paper leaves open, see the notes of the recipe"


class Paper(NamedTuple):
    """A table of the paper: its title, its metric, its rows of model, parameters and test perplexity.

    ``validation`` has the perplexities of the validation set, where the table has them; no recipe measures them.
    """

    title: str
    metric: str
    rows: Tuple[Tuple[str, ...], ...]
    validation: Mapping[str, str] = {}


# MEGALODON (Ma et al., NeurIPS 2024), Tables 5 and 8; the values of what we train stand in the recipes.
PAPERS = {
    "megalodon-table5": Paper(
        "Table 5, PG-19",
        "word_perplexity",
        (
            ("Compressive Transformer", "-", "33.60"),
            ("Perceiver AR", "975M", "28.90"),
            ("Block-Recurrent Transformer", "1.3B", "26.50"),
            ("MEGABYTE", "1.3B", "36.40"),
            ("MEGALODON", "1.3B", *paper_values("table5", "megalodon", ["pg19"], "word_perplexity", "megalodon")),
        ),
        {"Compressive Transformer": "43.4", "Perceiver AR": "45.9", "MEGABYTE": "42.8", "MEGALODON": "29.5"},
    ),
    "megalodon-table8": Paper(
        "Table 8, WikiText-103",
        "perplexity",
        (
            ("Transformer", "247M", *paper_values("table5", "transformer", ["wikitext103"], "perplexity")),
            ("Transformer-XL", "257M", "18.30"),
            ("S4", "249M", "20.95"),
            ("MEGA", "252M", *paper_values("table5", "mega", ["wikitext103"], "perplexity")),
            ("MEGALODON", "252M", *paper_values("table8", "megalodon", ["wikitext103"], "perplexity", "megalodon")),
        ),
    ),
}
TRAINED = {"Transformer": None, "MEGA": None, "MEGALODON": "megalodon"}  # see PaperTable


def table(results: Sequence[Dict[str, Any]], paper: Paper) -> Table:
    """The paper's rows, and the measured ones under them."""
    score = f"test {paper.metric.replace('_', ' ')}"
    columns = [f"MEGALODON, {paper.title}", "parameters", score, "tokens/s", "updates"]
    columns += ["validation"] if paper.validation else []
    published = {name: filled([size, value], paper, name) for name, size, value in paper.rows}
    return PaperTable(columns, published, TRAINED).beside(lambda _: measured(results, paper))


def measured(results: Sequence[Dict[str, Any]], paper: Paper) -> Rows:
    """A row for each result, or one that says there is nothing yet."""
    rows = []
    for result in results:
        settings, scores = result["settings"], result["scores"]
        name = "  measured" + ("" if result["seed"] is None else f", seed {result['seed']}")
        updates = f"{settings['max_update']:,}" if settings.get("max_update") else "-"
        score, speed = f"{scores[paper.metric]:.2f}", f"{scores['tokens_per_second']:,.0f}"
        rows.append([name, *filled([f"{settings['parameters']:,}", score, speed, updates], paper)])
    return rows or [["  measured", *filled(["-", "not yet"], paper)]]


def filled(cells: List[str], paper: Paper, name: str = "") -> List[str]:
    """Cells with a dash for each that is absent, and the validation set's, where the table has it, at the end."""
    row = [*cells, *["-"] * (4 - len(cells))]
    return [*row, paper.validation.get(name, "-")] if paper.validation else row


def run_table(options: argparse.Namespace, name: str) -> None:
    """Print a table."""
    results = given_results(options, name)
    show(options, [table(results, PAPERS[name])], results, [INTERPRETATION])
    warn_of_smoke(options)


def add_figure_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of Figure 5."""
    add_results(parser)
    parser.add_argument("--output", type=Path, required=True, help="image to write")


def curve(results: Sequence[Dict[str, Any]]) -> List[Tuple[int, float]]:
    """Context in tokens and perplexity per token, in rising order."""
    return sorted((row["settings"]["exact_context"], row["scores"]["perplexity"]) for row in results)


def run_figure(options: argparse.Namespace) -> None:
    """Print the curve, and draw it."""
    results = given_results(options, "megalodon-figure5")
    points = curve(results)
    if not points:
        raise ResultError(f"{options.results} has no result over contexts: run the recipe megalodon/figure5")
    rows = [[f"{context:,}", f"{score:.3f}"] for context, score in points]
    show(options, [Table(["MEGALODON, Figure 5, context", "test perplexity"], rows)], results)
    axes = {"xlabel": "context (tokens)", "ylabel": "test perplexity", "xscale": "log"}
    draw_panels([Panel([Line(points, style={"marker": "o"})], axes)], options.output, (6, 4))
    warn_of_smoke(options)


TABLE5 = Report("Print MEGALODON's Table 5: PG-19.", add_results, partial(run_table, name="megalodon-table5"))
TABLE8 = Report("Print MEGALODON's Table 8: WikiText-103.", add_results, partial(run_table, name="megalodon-table8"))
FIGURE5 = Report("Plot MEGALODON's Figure 5: perplexity over the context.", add_figure_options, run_figure)
