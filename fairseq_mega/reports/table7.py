"""MEGA's Table 7: WMT'16 English-German, newstest2014, measured beside the paper's."""

import argparse
import statistics
from typing import Any, Dict, List, Optional, Sequence, Tuple

from fairseq_mega.recipes.published import paper_values
from fairseq_mega.reports.report import Report, add_results, given_results, warn_of_smoke
from fairseq_mega.reports.results import ResultError
from fairseq_mega.reports.text_tables import aligned

BENCHMARK = "wmt16-newstest2014"
DIRECTIONS = ("en-de", "de-en")
METRICS = (("tokenized_bleu", "tokenised"), ("sacrebleu", "Sacre"))
COLUMNS = [(direction, metric) for direction in DIRECTIONS for metric, _name in METRICS]
# MEGA (Ma et al., ICLR 2023), Table 7: mean of 5 seeds, by (direction, metric); MEGA's stand in the recipes.
PAPER: Dict[str, Tuple[Optional[float], ...]] = {
    "Transformer base (published)": (27.30, None, None, None),
    "Transformer base (re-run)": (27.97, 27.33, 31.92, 31.33),
    **{
        f"MEGA {function}": tuple(
            float(paper_values("table7", f"mega_{function}", [direction], metric)[0]) for direction, metric in COLUMNS
        )
        for function in ("softmax", "laplace")
    },
}
CHECKPOINTS = {"best": "best checkpoint", "average": "averaged checkpoints"}
WIDTHS = (34, 18)


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
    """Return the table: the paper's rows, and under each MEGA row the measured ones."""
    titles = [f"{direction} {name}" for direction in DIRECTIONS for _metric, name in METRICS]
    lines = [aligned("newstest2014, BLEU", titles, *WIDTHS)]
    for model, scores in PAPER.items():
        lines.append(
            aligned(f"{model}, paper", ["-" if score is None else f"{score:.2f}" for score in scores], *WIDTHS)
        )
        attention = model.rpartition(" ")[2]
        for checkpoint, name in CHECKPOINTS.items() if model.startswith("MEGA") else ():
            cells = measured_cells(results, attention, checkpoint)
            if any(cell != "-" for cell in cells):
                lines.append(aligned(f"  measured, {name}", cells, *WIDTHS))
    return "\n".join(lines)


def run(options: argparse.Namespace) -> None:
    """Print the table and the measured seeds."""
    results = given_results(options, BENCHMARK)
    if not results:
        name = BENCHMARK + ("-smoke" if options.smoke else "")
        raise ResultError(f"{options.results} has no result of {name}; run scripts/mega_table7_wmt16.sh first")
    print(table(results))
    seeds = sorted({result["seed"] for result in results}, key=str)
    print(
        f"paper: mean of 5 seeds; measured: seeds {', '.join(map(str, seeds))}; "
        f"{results[0]['examples']} sentences; tokenised = compounds split"
    )
    warn_of_smoke(options, "invented text")


REPORT = Report("Print MEGA's Table 7: translation.", add_results, run)
