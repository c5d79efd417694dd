"""MEGA's Table 5: WikiText-103 perplexity and enwik8 bits per character, measured beside the paper's."""

import argparse
from typing import Any, Dict, List, Sequence

from fairseq_mega.lab.recipes.published import paper_values, row_title
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
TRAINED = ("Transformer, adaptive (Baevski and Auli)", "MEGA")  # the rows that recipes train
SCORE = {"wikitext103": ("perplexity", "perplexity", 2), "enwik8": ("bits_per_token", "bits per character", 3)}


def table(results: Sequence[Dict[str, Any]]) -> Table:
    """The paper's rows, and the measured ones under them."""
    found: List[List[str]] = []
    for task, rows in PAPER.items():
        metric, title, digits = SCORE[task]
        found += [
            [row_title(f"{task}, {name}", name in TRAINED), size, title, score, speed, "-"]
            for name, size, score, speed in rows
        ]
        measured = [result for result in results if result["label"].partition(".")[0] == task]
        for result in measured:
            settings, scores = result["settings"], result["scores"]
            if result["label"].split(".")[1:2] == ["transformer"]:
                name = f"  Transformer, measured (context of at least {settings['context_window']})"
            else:
                name = f"  MEGA, measured (K = {settings['segments']}, chunk {settings['chunk_size']})"
            name += "" if result["seed"] is None else f", seed {result['seed']}"
            updates = f"{settings['max_update']:,}" if settings.get("max_update") else "-"
            score, speed = f"{scores[metric]:.{digits}f}", f"{scores['tokens_per_second']:,.0f}"
            found.append([name, f"{settings['parameters']:,}", title, score, speed, updates])
        if not measured:
            found.append(["  MEGA, measured", "-", title, "not yet", "-", "-"])
    return Table(["Table 5", "parameters", "score", "test", "tokens/s", "updates"], found)


def run(options: argparse.Namespace) -> None:
    """Print the table."""
    results = given_results(options, "table5")
    show(options, [table(results)], results)
    warn_of_smoke(options)


REPORT = Report("Print MEGA's Table 5: language models.", add_results, run)
