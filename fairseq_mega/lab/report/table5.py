"""MEGA's Table 5: WikiText-103 perplexity and enwik8 bits per character, measured beside the paper's."""

import argparse
from typing import Any, Dict, Sequence

from fairseq_mega.lab.recipes.published import paper_values
from fairseq_mega.lab.report.paper_table import PaperTable, Rows
from fairseq_mega.lab.runs.report import Report, add_results, given_results, show, warn_of_smoke
from fairseq_mega.lab.runs.text_tables import Table

# MEGA (Ma et al., ICLR 2023), Table 5: parameters, test score, tokens per second (hardware not stated).
PAPER = {
    "wikitext103": (
        (
            *("Transformer, adaptive (Baevski and Auli)", "247M"),
            *(*paper_values("table5", "transformer", ["wikitext103"], "perplexity"), "5.6k"),
        ),
        ("Transformer-XL", "257M", "18.30", "-"),
        ("S4", "249M", "20.95", "-"),
        ("MEGA", "252M", *paper_values("table5", "mega", ["wikitext103"], "perplexity"), "48k"),
    ),
    "enwik8": (
        ("Transformer-XL", "41M", "1.06", "-"),
        ("MEGA", "39M", *paper_values("table5", "mega", ["enwik8"], "bits_per_token"), "-"),
    ),
}
TRAINED = {  # see PaperTable; all that was measured on a data set stands under MEGA's row
    "wikitext103, Transformer, adaptive (Baevski and Auli)": None,
    "wikitext103, MEGA": "wikitext103",
    "enwik8, MEGA": "enwik8",
}
SCORE = {"wikitext103": ("perplexity", "perplexity", 2), "enwik8": ("bits_per_token", "bits per character", 3)}


def table(results: Sequence[Dict[str, Any]]) -> Table:
    """The paper's rows, and the measured ones under them."""
    published = {
        f"{task}, {name}": [size, SCORE[task][1], score, speed, "-"]
        for task, rows in PAPER.items()
        for name, size, score, speed in rows
    }
    columns = ["Table 5", "parameters", "score", "test", "tokens/s", "updates"]
    return PaperTable(columns, published, TRAINED).beside(lambda task: measured(results, task))


def measured(results: Sequence[Dict[str, Any]], task: str) -> Rows:
    """A row for each result of a data set, or one that says there is nothing yet."""
    metric, unit, digits = SCORE[task]
    rows = []
    for result in results:
        data, model = (*result["label"].split("."), "mega")[:2]
        if data != task:
            continue
        settings, scores = result["settings"], result["scores"]
        if model == "transformer":
            name = f"  Transformer, measured (context of at least {settings['context_window']})"
        else:
            title = "MEGA" if model == "mega" else model  # a recipe of one's own
            name = f"  {title}, measured (K = {settings['segments']}, chunk {settings['chunk_size']})"
        name += "" if result["seed"] is None else f", seed {result['seed']}"
        updates = f"{settings['max_update']:,}" if settings.get("max_update") else "-"
        score, speed = f"{scores[metric]:.{digits}f}", f"{scores['tokens_per_second']:,.0f}"
        rows.append([name, f"{settings['parameters']:,}", unit, score, speed, updates])
    return rows or [["  MEGA, measured", "-", unit, "not yet", "-", "-"]]


def run(options: argparse.Namespace) -> None:
    """Print the table."""
    results = given_results(options, "table5")
    show(options, [table(results)], results)
    warn_of_smoke(options)


REPORT = Report("Print MEGA's Table 5: language models.", add_results, run)
