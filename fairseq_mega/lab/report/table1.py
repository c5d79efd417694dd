"""MEGA's Table 1, the summary of its other tables, with our measurements."""

import argparse
from typing import Any, Dict, List, Sequence

from fairseq_mega.lab.evaluate.lra_runs import BENCHMARK, LRA, TASKS, mega, select, shortened
from fairseq_mega.lab.report.image_tables import TABLE6, accuracy
from fairseq_mega.lab.report.language_model_tables import TABLE5
from fairseq_mega.lab.report.lra_cells import average, cell
from fairseq_mega.lab.report.lra_tables import TABLE2, TABLE4
from fairseq_mega.lab.report.paper_table import PaperTable, Rows
from fairseq_mega.lab.report.table7 import TABLE7, measured_cells
from fairseq_mega.lab.runs.report import show, warn_of_smoke

SUMMARISED = (TABLE2, TABLE4, TABLE5, TABLE6, TABLE7)
BENCHMARKS = tuple(dict.fromkeys(name for table in (TABLE2, TABLE7, TABLE5, TABLE6) for name in table.benchmarks))
FAILS = "pathx"  # the average of Transformers is over the other tasks
Results = Sequence[Dict[str, Any]]


def paper() -> Dict[str, List[str]]:
    """Return the published rows, from the tables that Table 1 summarises: accuracy, tokenised BLEU, perplexity,
    accuracies.
    """

    def language(model: str) -> str:
        return TABLE5.rows[f"wikitext103, {model}"][2]

    arena = {name: row[len(LRA)] for name, row in TABLE2.rows.items()}
    bleu = {name: row[0] for name, row in TABLE7.rows.items()}
    images, speech = ({name: row[1] for name, row in table.rows.items()} for table in (TABLE6, TABLE4))
    transformer = language("Transformer, adaptive (Baevski and Auli)")
    return {
        "Transformer": [
            *(arena["Transformer"], bleu["Transformer base (re-run)"], transformer),
            *(images["DeiT-B"], speech["Transformer"]),
        ],
        "S4": [arena["S4-v2 (re-run)"], "-", language("S4"), "-", speech["S4"]],
        "MEGA": [
            *(arena["MEGA"], bleu["MEGA softmax"], language("MEGA")),
            *(images["MEGA"], speech["MEGA-chunk base"]),
        ],
    }


def measured(results: Results, model: str) -> Rows:
    """Return the row of measurements of a model, Transformer or MEGA."""
    arena, translations, language, images = (
        [result for result in results if result["benchmark"].startswith(name)] for name in BENCHMARKS
    )
    if model == "MEGA":
        runs = [mega(arena, task, -1) for task in LRA]
        speech = cell(select(arena, task="speech", model="mega-base", chunk=TASKS["speech"].chunk))
    else:
        runs = [select(arena, task=task, model="transformer") for task in LRA if task != FAILS]
        speech = "-"
    bleu = measured_cells(translations, "mega_softmax" if model == "MEGA" else "transformer", "best")[0]
    top1 = accuracy(select(images, model="mega" if model == "MEGA" else "deit_b", checkpoint="last"))
    cells = [average(runs), bleu, perplexity(model, language), top1, speech]
    return [["  measured", *(cells if set(cells) != {"-"} else ["not yet", *cells[1:]])]]


def perplexity(model: str, language: Results) -> str:
    """Return a model's perplexity on WikiText-103, the lowest over its contexts; "-" where there is none."""
    label = ["wikitext103", model.lower()]
    scores = [run["scores"]["perplexity"] for run in language if run["label"].split(".")[:2] == label]
    return f"{min(scores):.2f}" if scores else "-"


def run(table: PaperTable, options: argparse.Namespace) -> None:
    """Print the table, and the origin of its numbers."""
    results = table.read(options)
    notes = [*table.notes]
    if any(shortened(result) for result in results if result["benchmark"].startswith(BENCHMARK)):
        notes.append("* fewer updates than in the paper: not comparable with the paper's numbers")
    show(options, [table.of(results)], results, notes)
    warn_of_smoke(options.smoke)


TABLE1 = PaperTable(
    "MEGA, Table 1: the summary of Tables 2, 4, 5, 6 and 7",
    BENCHMARKS,
    tuple(folder for table in SUMMARISED for folder in table.recipes),
    ["Table 1", "LRA", "WMT16 en-de", "WikiText-103", "ImageNet", "SC"],
    paper(),
    {"Transformer": "Transformer", "MEGA": "MEGA"},
    measured,
    notes=("LRA: mean of six tasks (of Transformers five); WMT16: tokenised BLEU; WikiText-103: perplexity",),
    run=run,
)
