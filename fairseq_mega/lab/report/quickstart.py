"""Scores of the quick start's trainings, in the form of recipes: fairseq-mega-reproduce quickstart."""

import argparse

from fairseq_mega.lab.runs.report import Report, add_results, given_results, show, warn_of_smoke
from fairseq_mega.lab.runs.results import ResultError
from fairseq_mega.lab.runs.text_tables import table_of

BENCHMARK = "quickstart"
SCORES = {"sacrebleu": "sacreBLEU", "bits_per_token": "bits per byte"}


def run(options: argparse.Namespace) -> None:
    """Print a row for each result."""
    results = given_results(options, BENCHMARK)
    if not results:
        raise ResultError(f"{options.results} has no result of the quick start: run fairseq-mega-reproduce quickstart")
    rows = [
        {
            "task": result["settings"]["task"],
            "seed": str(result["seed"]),
            "scored": f"{result['examples']:,}",
            "score": ", ".join(
                f"{result['scores'][key]:.3f} {SCORES[key]}" for key in SCORES if key in result["scores"]
            ),
        }
        for result in results
    ]
    show(options, [table_of(rows)], results)
    warn_of_smoke(options.smoke)


REPORT = Report("Print the scores of the quick start's recipes.", add_results, run)
