"""MEGALODON's Tables 4, 6 and 7: ImageNet, the Long Range Arena and raw speech, measured beside the paper's."""

import argparse
from functools import partial
from typing import Callable, Dict, List, Sequence, Tuple

from fairseq_mega.lab.evaluate.lra_runs import BENCHMARK, LRA, TASKS, Result, select
from fairseq_mega.lab.recipes.published import paper_values
from fairseq_mega.lab.report import table6 as imagenet
from fairseq_mega.lab.report.lra_cells import average, measured_rows, speech_rows
from fairseq_mega.lab.report.lra_tables import PAPER2, PAPER4, print_table
from fairseq_mega.lab.report.paper_table import PaperTable, Rows
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
TABLE_6 = PaperTable(
    ["MEGALODON, Table 6, test accuracy", *(TASKS[task].title for task in LRA), "average"],
    PAPER6,
    {"Transformer": None, "MEGA-chunk": None, "MEGA": None, "MEGALODON": "full", "MEGALODON-chunk": "chunked"},
)
PAPER7 = {**PAPER4, "MEGALODON-chunk": ("300K", *published("table7", "megalodon", ["speech"]))}
TABLE_7 = PaperTable(
    ["MEGALODON, Table 7, test accuracy", "parameters", "SC10"],
    PAPER7,
    {"MEGA-chunk base": None, "MEGA-chunk big": None, "MEGALODON-chunk": "chunked"},
)
INTERPRETATION = "measured rows: our interpretation, as the paper leaves the architecture of classifiers open"
IMAGES = imagenet.ImageTable(
    PaperTable(
        imagenet.columns("MEGALODON, Table 4, ImageNet-1k"),
        {  # of MEGA and others it repeats MEGA's Table 6
            **imagenet.PAPER,
            "MEGALODON": ("90M", *published("table4", "megalodon", ["imagenet"], "top1_accuracy")),
        },
        {"DeiT-B": None, "MEGA": None, "MEGALODON": "megalodon"},
    ),
    "megalodon_table4_imagenet.sh",
    (imagenet.NOTE, INTERPRETATION),
)


def megalodon(results: Sequence[Result], task: str, chunk: int) -> List[Result]:
    """Results of a task with a chunk, or with full attention (-1)."""
    return select(results, task=task, model="megalodon", chunk=chunk)


def table6(results: Sequence[Result]) -> Table:
    """Accuracy of all tasks."""

    def measured(attention: str) -> Rows:
        chunks = [TASKS[task].chunk if attention == "chunked" else -1 for task in LRA]
        cells = [megalodon(results, task, chunk) for task, chunk in zip(LRA, chunks)]
        return measured_rows("  measured", cells, [average(cells)])

    return TABLE_6.beside(measured)


def table7(results: Sequence[Result]) -> Table:
    """Parameters and accuracy on raw speech."""
    return TABLE_7.beside(lambda _: speech_rows("  measured", megalodon(results, "speech", TASKS["speech"].chunk)))


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
