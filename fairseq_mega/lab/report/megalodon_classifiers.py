"""MEGALODON's Tables 4, 6 and 7: ImageNet, the Long Range Arena and raw speech, measured beside the paper's."""

import argparse
from functools import partial
from typing import Callable, Dict, List, Sequence, Tuple

from fairseq_mega.lab.evaluate.lra_runs import BENCHMARK, LRA, TASKS, Result, select
from fairseq_mega.lab.recipes.published import paper_values, row_title
from fairseq_mega.lab.report import table6 as imagenet
from fairseq_mega.lab.report.lra_cells import average, cell, learned, measured_rows
from fairseq_mega.lab.report.lra_tables import PAPER2, PAPER4, print_table
from fairseq_mega.lab.runs.report import Report, add_results, given_results
from fairseq_mega.lab.runs.text_tables import Table

published = partial(paper_values, paper="megalodon")
# MEGALODON (Ma et al., NeurIPS 2024), Table 6; of MEGA and others it repeats MEGA's Table 2.
PAPER6: Dict[str, Tuple[str, ...]] = {
    **{name: PAPER2[name][:7] for name in ("Transformer", "Reformer", "Linformer", "BigBird", "Luna-256")},
    "S4": PAPER2["S4-v2 (re-run)"][:7],
    "MEGA-chunk": PAPER2["MEGA-chunk"][:7],
    "MEGA": PAPER2["MEGA"][:7],
    "MEGALODON": (*published("table6", "megalodon", LRA), "88.63"),
    "MEGALODON-chunk": (*published("table6", "megalodon_chunk", LRA), "87.62"),
}
PAPER7 = {**PAPER4, "MEGALODON-chunk": ("300K", *published("table7", "megalodon", ["speech"]))}
INTERPRETATION = "measured rows: our interpretation, as the paper leaves the architecture of classifiers open"
IMAGES = imagenet.ImageTable(
    "MEGALODON, Table 4, ImageNet-1k",
    {  # of MEGA and others it repeats MEGA's Table 6
        **imagenet.PAPER,
        "MEGALODON": ("90M", *published("table4", "megalodon", ["imagenet"], "top1_accuracy")),
    },
    {"MEGALODON": "megalodon"},
    "megalodon_table4_imagenet.sh",
    (imagenet.NOTE, INTERPRETATION),
)


def megalodon(results: Sequence[Result], task: str, chunk: int) -> List[Result]:
    """Results of a task with a chunk, or with full attention (-1)."""
    return select(results, task=task, model="megalodon", chunk=chunk)


def table6(results: Sequence[Result]) -> Table:
    """Accuracy of all tasks."""
    rows: List[List[str]] = []
    for name, paper in PAPER6.items():
        rows.append([row_title(name, name == "Transformer" or name.startswith("MEGA")), *paper])
        if name.startswith("MEGALODON"):
            chunked = name.endswith("chunk")
            cells = [megalodon(results, task, TASKS[task].chunk if chunked else -1) for task in LRA]
            rows += measured_rows("  measured", cells, [average(cells)])
    return Table(["MEGALODON, Table 6, test accuracy", *(TASKS[task].title for task in LRA), "average"], rows)


def table7(results: Sequence[Result]) -> Table:
    """Parameters and accuracy on raw speech."""
    rows = [[row_title(name, name.startswith("MEGA")), *paper] for name, paper in PAPER7.items()]
    found = megalodon(results, "speech", TASKS["speech"].chunk)
    size = f"{found[0]['settings']['parameters']:,}" if found else "-"
    rows.append(["  measured", size, cell(found) if found else "not yet"])
    rows += [["  runs that left chance", "", learned(found)]] if found else []
    return Table(["MEGALODON, Table 7, test accuracy", "parameters", "SC10"], rows)


def run(options: argparse.Namespace, table: Callable[[Sequence[Result]], Table], tasks: Sequence[str]) -> None:
    """Print a table and the runs in it."""
    results = given_results(options, BENCHMARK)
    used = [run for task in tasks for chunk in (-1, TASKS[task].chunk) for run in megalodon(results, task, chunk)]
    print_table(table(results), used, options)
    if options.format != "csv":
        print(INTERPRETATION)


TABLE4 = Report("Print MEGALODON's Table 4: ImageNet.", add_results, partial(imagenet.run, kind=IMAGES))
TABLE6 = Report("Print MEGALODON's Table 6: the Long Range Arena.", add_results, partial(run, table=table6, tasks=LRA))
TABLE7 = Report("Print MEGALODON's Table 7: raw speech.", add_results, partial(run, table=table7, tasks=["speech"]))
