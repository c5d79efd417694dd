"""Print the measured row of MEGA's Table 7 (WMT'16 English-German, newstest2014) beside the paper's.

python -m fairseq_mega.reports.table7 --results DIR
"""

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

from fairseq_mega.reports.results import ResultError, read_results

BENCHMARK = "wmt16-newstest2014"
DIRECTIONS = ("en-de", "de-en")
METRICS = (("tokenized_bleu", "tokenised"), ("sacrebleu", "Sacre"))
COLUMNS = [(direction, metric) for direction in DIRECTIONS for metric, _name in METRICS]
# MEGA (Ma et al., ICLR 2023), Table 7: mean of 5 seeds, by (direction, metric).
PAPER: Dict[str, Tuple[Optional[float], ...]] = {
    "Transformer base (published)": (27.30, None, None, None),
    "Transformer base (re-run)": (27.97, 27.33, 31.92, 31.33),
    "MEGA softmax": (29.18, 28.47, 32.90, 32.35),
    "MEGA laplace": (28.95, 28.27, 32.81, 32.22),
}
CHECKPOINTS = {"best": "best checkpoint", "average": "averaged checkpoints"}
WIDTH = 34


def measured_cells(results: Sequence[Dict[str, Any]], attention: str, checkpoint: str) -> List[str]:
    """Return the cells of a row, mean over the seeds (with standard deviation and number from two seeds on)."""
    cells = []
    for direction, metric in COLUMNS:
        by_seed = {
            result["seed"]: result["scores"][metric]
            for result in results
            if (
                result["settings"].get("direction"),
                result["settings"].get("attention"),
                result["settings"].get("checkpoint"),
            )
            == (direction, attention, checkpoint)
            and metric in result["scores"]
        }
        values = list(by_seed.values())
        if not values:
            cells.append("-")
        elif len(values) == 1:
            cells.append(f"{values[0]:.2f}")
        else:
            cells.append(f"{statistics.mean(values):.2f} ±{statistics.stdev(values):.2f} ({len(values)})")
    return cells


def table(results: Sequence[Dict[str, Any]]) -> str:
    """Return the table: the paper's rows, and under each MEGA row what was measured."""
    titles = [f"{direction} {name}" for direction in DIRECTIONS for _metric, name in METRICS]
    lines = [_row("newstest2014, BLEU", titles)]
    for model, scores in PAPER.items():
        lines.append(_row(f"{model}, paper", ["-" if score is None else f"{score:.2f}" for score in scores]))
        attention = model.rpartition(" ")[2]
        for checkpoint, name in CHECKPOINTS.items() if model.startswith("MEGA") else ():
            cells = measured_cells(results, attention, checkpoint)
            if any(cell != "-" for cell in cells):
                lines.append(_row(f"  measured, {name}", cells))
    return "\n".join(lines)


def _row(title: str, cells: Sequence[str]) -> str:
    return title.ljust(WIDTH) + "".join(cell.rjust(18) for cell in cells)


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the command line; returns the exit status (0, or 1 after an error message)."""
    parser = argparse.ArgumentParser(prog="table7", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--results", type=Path, required=True, metavar="DIR", help="folder of the JSON result files")
    parser.add_argument("--smoke", action="store_true", help="read the results of a smoke run")
    args = parser.parse_args(argv)
    benchmark = BENCHMARK + ("-smoke" if args.smoke else "")
    try:
        results = read_results(args.results, benchmark)
        if not results:
            raise ResultError(f"{args.results} has no result of {benchmark}; run scripts/mega_table7_wmt16.sh first")
    except (ResultError, OSError) as error:
        print(f"table7: error: {error}", file=sys.stderr)
        return 1
    print(table(results))
    seeds = sorted({result["seed"] for result in results}, key=str)
    print(
        f"paper: mean of 5 seeds; measured: seeds {', '.join(map(str, seeds))}; "
        f"{results[0]['examples']} sentences; tokenised = compounds split"
    )
    if args.smoke:
        print("SMOKE RUN on invented text: these numbers mean nothing")
    return 0


if __name__ == "__main__":
    sys.exit(main())
