"""Print what scripts/compare_classifiers.sh measured, as a Markdown table.

python -m fairseq_mega.cli.classifier_table RESULTS
"""

import argparse
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

from fairseq_mega.cli.results import ResultError, read_results

BENCHMARK = "compare-classifiers"
TITLES = {"mega": "MEGA", "mega-n0": "MEGA without EMA (N = 0)", "transformer": "Transformer, full attention"}
HEADER = (
    "| model | parameters | updates x examples | test accuracy | best validation accuracy | examples/s in training "
    "| peak GiB |\n|---|---|---|---|---|---|---|"
)


def row(result: Dict[str, Any]) -> str:
    """One line of the table."""
    scores, settings = result["scores"], result["settings"]
    title = TITLES[result["label"]]
    if result["label"] != "transformer":
        title += f", chunk {settings['chunk']}"
    seconds = scores.get("seconds_per_epoch")
    speed = "-" if seconds is None else f"{settings['train_examples'] / seconds:,.1f}"
    memory = scores.get("peak_memory_gib")
    return (
        f"| {title} | {settings['parameters']:,} | {settings['updates']:,} x {settings['batch']} "
        f"| {scores['test_accuracy']:.2f} % of {result['examples']:,} | {scores['best_valid_accuracy']:.2f} % "
        f"| {speed} | {'-' if memory is None else f'{memory:.2f}'} |"
    )


def table(results: Sequence[Dict[str, Any]]) -> str:
    """All results, MEGA first."""
    ordered = sorted(results, key=lambda result: list(TITLES).index(result["label"]))
    return "\n".join([HEADER, *map(row, ordered)])


def main(arguments: Optional[List[str]] = None) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(prog="classifier_table", description=__doc__)
    parser.add_argument("results", type=Path, help="folder of result files")
    options = parser.parse_args(arguments)
    try:
        results = read_results(options.results, BENCHMARK)
        if not results:
            raise ResultError(f"{options.results} holds no result of {BENCHMARK}: run scripts/compare_classifiers.sh")
        print(table(results))
    except (OSError, ResultError) as error:
        print(f"classifier_table: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
