"""MEGA's Table 1, the summary of its other tables, with what was measured for them."""

import argparse
from typing import Any, Dict, List, Sequence

from fairseq_mega.lab.evaluate.lra_runs import BENCHMARK, LRA, TASKS, mega, partial, select
from fairseq_mega.lab.report import lra_tables, table5, table6, table7
from fairseq_mega.lab.report.lra_cells import average, cell
from fairseq_mega.lab.report.paper_table import PaperTable, Rows
from fairseq_mega.lab.runs.report import Report, add_results, given_results, show, warn_of_smoke
from fairseq_mega.lab.runs.text_tables import Table

COLUMNS = ["Table 1", "LRA", "WMT16 en-de", "WikiText-103", "ImageNet", "SC"]
FAILS = "pathx"  # the average of Transformers is that of the other tasks
Results = Sequence[Dict[str, Any]]


def paper() -> Dict[str, List[str]]:
    """The published rows, from the tables that they summarise: accuracy, tokenised BLEU, perplexity, accuracies."""
    language = {row[0]: row[2] for row in table5.PAPER["wikitext103"]}
    base, softmax = (f"{table7.PAPER[name][0]:.2f}" for name in ("Transformer base (re-run)", "MEGA softmax"))
    deit, images = (table6.PAPER[name][1] for name in ("DeiT-B", "MEGA"))
    arena = {name: row[len(LRA)] for name, row in lra_tables.PAPER2.items()}
    speech = lra_tables.PAPER4
    transformer = language["Transformer, adaptive (Baevski and Auli)"]
    return {
        "Transformer": [arena["Transformer"], base, transformer, deit, speech["Transformer"][1]],
        "S4": [arena["S4-v2 (re-run)"], "-", language["S4"], "-", speech["S4"][1]],
        "MEGA": [arena["MEGA"], softmax, language["MEGA"], images, speech["MEGA-chunk base"][1]],
    }


def measured(model: str, arena: Results, translations: Results, language: Results, images: Results) -> List[str]:
    """What was measured of a model, Transformer or MEGA."""
    if model == "MEGA":
        runs = [mega(arena, task, -1) for task in LRA]
        speech = cell(select(arena, task="speech", model="mega-base", chunk=TASKS["speech"].chunk))
    else:
        runs = [select(arena, task=task, model="transformer") for task in LRA if task != FAILS]
        speech = "-"
    bleu = table7.measured_cells(translations, "mega_softmax" if model == "MEGA" else "transformer", "best")[0]
    top1 = table6.accuracy(select(images, model="mega" if model == "MEGA" else "deit_b", checkpoint="last"))
    return [average(runs), bleu, perplexity(model, language), top1, speech]


def perplexity(model: str, language: Results) -> str:
    """That of a model on WikiText-103, the lowest over its contexts; nothing where there is none."""
    label = ["wikitext103", model.lower()]
    scores = [run["scores"]["perplexity"] for run in language if run["label"].split(".")[:2] == label]
    return f"{min(scores):.2f}" if scores else "-"


def table(arena: Results, translations: Results, language: Results, images: Results = ()) -> Table:
    """The paper's rows, and under those that have recipes what was measured."""

    def rows(model: str) -> Rows:
        found = measured(model, arena, translations, language, images)
        return [["  measured", *(found if set(found) != {"-"} else ["not yet", *found[1:]])]]

    return PaperTable(COLUMNS, paper(), {"Transformer": "Transformer", "MEGA": "MEGA"}).beside(rows)


def run(options: argparse.Namespace) -> None:
    """Print the table, and where its numbers come from."""
    found = [given_results(options, name) for name in (BENCHMARK, table7.BENCHMARK, "table5", table6.BENCHMARK)]
    notes = ["LRA: mean of six tasks (of Transformers five); WMT16: tokenised BLEU; WikiText-103: perplexity"]
    if any(map(partial, found[0])):
        notes.append("* fewer updates than in the paper: not comparable with the paper's numbers")
    show(options, [table(*found)], [result for some in found for result in some], notes)
    warn_of_smoke(options)


REPORT = Report("Print MEGA's Table 1: the summary of Tables 2, 4, 5, 6 and 7.", add_results, run)
