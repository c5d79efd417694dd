"""Print the measured rows of MEGA's Table 5 (WikiText-103 perplexity, enwik8 bits per character) beside the paper's.

python -m fairseq_mega.reports.table5 DIR
"""

import argparse
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

from fairseq_mega.reports.results import read_results

# MEGA (Ma et al., ICLR 2023), Table 5: parameters, test score, tokens per second (hardware not stated).
PAPER = {
    "wikitext103": (
        ("Transformer, adaptive (Baevski and Auli)", "247M", "18.66", "5.6k"),
        ("Transformer-XL", "257M", "18.30", "-"),
        ("S4", "249M", "20.95", "-"),
        ("MEGA", "252M", "18.07", "48k"),
    ),
    "enwik8": (("Transformer-XL", "41M", "1.06", "-"), ("MEGA", "39M", "1.02", "-")),
}
SCORE = {"wikitext103": ("perplexity", "perplexity", 2), "enwik8": ("bits_per_token", "bits per character", 3)}


def table(results: Sequence[Dict[str, Any]]) -> str:
    """The paper's rows, and under them what was measured."""
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


def main(arguments: Optional[List[str]] = None) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(prog="table5", description=__doc__)
    parser.add_argument("results", type=Path, help="folder of result files")
    parser.add_argument("--smoke", action="store_true", help="read the results of a --smoke run")
    options = parser.parse_args(arguments)
    try:
        print(table(read_results(options.results, "table5-smoke" if options.smoke else "table5")))
    except (OSError, ValueError) as error:
        print(f"table5: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
