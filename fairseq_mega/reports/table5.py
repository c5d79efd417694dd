"""MEGA's Table 5: WikiText-103 perplexity and enwik8 bits per character, measured beside the paper's."""

import argparse
from typing import Any, Dict, List, Sequence

from fairseq_mega.recipes.published import paper_values
from fairseq_mega.reports.report import Report, add_results, given_results, warn_of_smoke

# MEGA (Ma et al., ICLR 2023), Table 5: parameters, test score, tokens per second (hardware not stated).
PAPER = {
    "wikitext103": (
        ("Transformer, adaptive (Baevski and Auli)", "247M", "18.66", "5.6k"),
        ("Transformer-XL", "257M", "18.30", "-"),
        ("S4", "249M", "20.95", "-"),
        ("MEGA", "252M", *paper_values("table5", "mega", ["wikitext103"], "perplexity"), "48k"),
    ),
    "enwik8": (
        ("Transformer-XL", "41M", "1.06", "-"),
        ("MEGA", "39M", *paper_values("table5", "mega", ["enwik8"], "bits_per_token"), "-"),
    ),
}
SCORE = {"wikitext103": ("perplexity", "perplexity", 2), "enwik8": ("bits_per_token", "bits per character", 3)}


def table(results: Sequence[Dict[str, Any]]) -> str:
    """The paper's rows, and the measured ones under them."""
    lines: List[str] = []
    for task, rows in PAPER.items():
        metric, title, digits = SCORE[task]
        lines += ["", f"{task:<46} {'parameters':>12} {title:>20} {'tokens/s':>10} {'updates':>10}"]
        lines += [f"{name + ', paper':<46} {size:>12} {score:>20} {speed:>10}" for name, size, score, speed in rows]
        measured = [result for result in results if result["label"].partition(".")[0] == task]
        for result in measured:
            settings, scores = result["settings"], result["scores"]
            name = f"MEGA, measured (K = {settings['segments']}, chunk {settings['chunk_size']})"
            name += "" if result["seed"] is None else f", seed {result['seed']}"
            row = f"{name:<46} {settings['parameters']:>12,} {f'{scores[metric]:.{digits}f}':>20}"
            updates = f"{settings['max_update']:,}" if settings.get("max_update") else "-"
            lines.append(f"{row} {scores['tokens_per_second']:>10,.0f} {updates:>10}")
        if not measured:
            lines.append(f"{'MEGA, measured':<46} {'-':>12} {'not yet':>20} {'-':>10}")
    return "\n".join(lines[1:])


def run(options: argparse.Namespace) -> None:
    """Print the table."""
    print(table(given_results(options, "table5")))
    warn_of_smoke(options)


REPORT = Report("Print MEGA's Table 5: language models.", add_results, run)
