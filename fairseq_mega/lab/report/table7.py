"""MEGA's Table 7: WMT'16 English-German, newstest2014, measured beside the paper's."""

import argparse
from typing import Any, Dict, List, Optional, Sequence, Tuple

from fairseq_mega.lab.recipes.published import paper_values
from fairseq_mega.lab.report.lra_cells import spread
from fairseq_mega.lab.report.paper_table import PaperTable, Rows
from fairseq_mega.lab.runs.report import Report, add_results, given_results, show, warn_of_smoke
from fairseq_mega.lab.runs.results import ResultError
from fairseq_mega.lab.runs.text_tables import Table

BENCHMARK = "wmt16-newstest2014"
DIRECTIONS = ("en-de", "de-en")
METRICS = (("tokenized_bleu", "tokenised"), ("sacrebleu", "Sacre"))
COLUMNS = [(direction, metric) for direction in DIRECTIONS for metric, _name in METRICS]
TRAINED = {  # rows to the names of their recipes
    "Transformer base (re-run)": "transformer",
    "MEGA softmax": "mega_softmax",
    "MEGA laplace": "mega_laplace",
}
# MEGA (Ma et al., ICLR 2023), Table 7: mean of 5 seeds, by (direction, metric); MEGA's stand in the recipes.
PAPER: Dict[str, Tuple[Optional[float], ...]] = {
    "Transformer base (published)": (27.30, None, None, None),
    **{
        title: tuple(float(paper_values("table7", recipe, [direction], metric)[0]) for direction, metric in COLUMNS)
        for title, recipe in TRAINED.items()
    },
}
CHECKPOINTS = {"best": "best checkpoint", "average": "averaged checkpoints"}


def recipe_of(settings: Dict[str, Any]) -> str:
    """Name of the recipe of a result."""
    return "transformer" if settings.get("model") == "transformer" else f"mega_{settings.get('attention')}"


def measured_cells(results: Sequence[Dict[str, Any]], recipe: str, checkpoint: str) -> List[str]:
    """Return the cells of a row, mean over the seeds (with standard deviation and number from two seeds on)."""
    cells = []
    for direction, metric in COLUMNS:
        by_seed = {
            result["seed"]: result["scores"][metric]
            for result in results
            if (
                result["settings"].get("direction"),
                recipe_of(result["settings"]),
                result["settings"].get("checkpoint"),
            )
            == (direction, recipe, checkpoint)
            and metric in result["scores"]
        }
        values = list(by_seed.values())
        count = f" ({len(values)})" if len(values) > 1 else ""
        cells.append(spread(values) + count if values else "-")
    return cells


def table(results: Sequence[Dict[str, Any]]) -> Table:
    """Return the table: the paper's rows, and under those of recipes the measured ones."""

    def measured(recipe: str) -> Rows:
        cells = {name: measured_cells(results, recipe, checkpoint) for checkpoint, name in CHECKPOINTS.items()}
        rows = [[f"  measured, {name}", *row] for name, row in cells.items() if set(row) != {"-"}]
        return rows or [["  measured", "not yet", *["-"] * (len(COLUMNS) - 1)]]

    titles = [f"{direction} {name}" for direction in DIRECTIONS for _metric, name in METRICS]
    published = {
        model: ["-" if score is None else f"{score:.2f}" for score in scores] for model, scores in PAPER.items()
    }
    return PaperTable(["newstest2014, BLEU", *titles], published, TRAINED).beside(measured)


def run(options: argparse.Namespace) -> None:
    """Print the table and the measured seeds."""
    results = given_results(options, BENCHMARK)
    if not results:
        name = BENCHMARK + ("-smoke" if options.smoke else "")
        raise ResultError(f"{options.results} has no result of {name}; run scripts/mega_table7_wmt16.sh first")
    show(options, [table(results)], results)
    if options.format == "csv":
        return
    seeds = sorted({result["seed"] for result in results}, key=str)
    print(
        f"paper: mean of 5 seeds; measured: seeds {', '.join(map(str, seeds))}; "
        f"{results[0]['examples']} sentences; tokenised = compounds split"
    )
    warn_of_smoke(options, "invented text")


REPORT = Report("Print MEGA's Table 7: translation.", add_results, run)
