"""MEGA's Table 7: WMT'16 English-German, newstest2014, with our measurements."""

import argparse
from typing import Any, Dict, List, Sequence

from fairseq_mega.lab.recipes.paper_values import paper_values
from fairseq_mega.lab.report.lra_cells import mean_and_deviation
from fairseq_mega.lab.report.paper_table import PaperTable, Rows
from fairseq_mega.lab.runs.report import show, warn_of_smoke
from fairseq_mega.lab.runs.results import Result

METRICS = {"tokenized_bleu": "tokenised", "sacrebleu": "Sacre"}
COLUMNS = [(direction, metric) for direction in ("en-de", "de-en") for metric in METRICS]
TRAINED = {  # names of recipes by row
    "Transformer base (re-run)": "transformer",
    "MEGA softmax": "mega_softmax",
    "MEGA laplace": "mega_laplace",
}
CHECKPOINTS = {"best": ", best checkpoint", "average": ", averaged checkpoints", "given": ""}  # ends of titles


def recipe_of(settings: Dict[str, Any]) -> str:
    """Return the name of a result's recipe."""
    return "transformer" if settings.get("model") == "transformer" else f"mega_{settings.get('attention')}"


def measured_cells(results: Sequence[Result], recipe: str, checkpoint: str) -> List[str]:
    """Return the cells of a row, mean over the seeds (with standard deviation and number from two seeds on)."""
    cells = []
    for direction, metric in COLUMNS:
        by_seed = {}
        for result in results:
            settings = result["settings"]
            found = (settings.get("direction"), recipe_of(settings), settings.get("checkpoint"))
            if found == (direction, recipe, checkpoint) and metric in result["scores"]:
                by_seed[result["seed"]] = result["scores"][metric]
        count = f" ({len(by_seed)})" if len(by_seed) > 1 else ""
        cells.append(mean_and_deviation(list(by_seed.values())) + count if by_seed else "-")
    return cells


def measured(results: Sequence[Result], recipe: str) -> Rows:
    """Return a row for each scored checkpoint of a recipe, or one row without results."""
    cells = {name: measured_cells(results, recipe, checkpoint) for checkpoint, name in CHECKPOINTS.items()}
    rows = [[f"  measured{name}", *row] for name, row in cells.items() if set(row) != {"-"}]
    return rows or [["  measured", "not yet", *["-"] * (len(COLUMNS) - 1)]]


def run(table: PaperTable, options: argparse.Namespace) -> None:
    """Print the table and the measured seeds.

    Raises:
        ResultError: if there is no result.
    """
    results = table.read(options)
    table.require(results, options, "mega_table7_wmt16.sh")
    show(options, [table.of(results)], results)
    if options.format == "csv":
        return
    seeds = sorted({result["seed"] for result in results}, key=str)
    print(
        f"paper: mean of 5 seeds; measured: seeds {', '.join(map(str, seeds))}; "
        f"{results[0]['examples']} sentences; tokenised = compounds split"
    )
    warn_of_smoke(options.smoke, "invented text")


# MEGA (Ma et al., ICLR 2023), Table 7: mean of 5 seeds.
TABLE7 = PaperTable(
    "MEGA, Table 7: translation",
    ("wmt16-newstest2014",),
    ("mega/table7",),
    ["newstest2014, BLEU", *(f"{direction} {METRICS[metric]}" for direction, metric in COLUMNS)],
    {
        "Transformer base (published)": ("27.30", "-", "-", "-"),
        **{
            title: [paper_values("table7", recipe, [direction], metric)[0] for direction, metric in COLUMNS]
            for title, recipe in TRAINED.items()
        },
    },
    TRAINED,
    measured,
    run=run,
)
