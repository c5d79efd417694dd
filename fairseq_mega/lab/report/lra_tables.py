"""MEGA's Tables 2, 3 and 4, with the measured rows under the paper's."""

import argparse
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple

from fairseq_mega.lab.evaluate.lra_runs import BENCHMARK, LRA, TASKS, Result, mega, scaling_of, select
from fairseq_mega.lab.recipes.catalogue import find
from fairseq_mega.lab.recipes.published import paper_values
from fairseq_mega.lab.report.lra_cells import average, measured_rows, notes, run_lines, run_table, speech_rows
from fairseq_mega.lab.report.paper_table import PaperTable, Rows
from fairseq_mega.lab.runs.report import Report, add_results, given_results, show, warn_of_smoke
from fairseq_mega.lab.runs.results import read_result
from fairseq_mega.lab.runs.text_tables import Table

# MEGA (Ma et al., ICLR 2023), Table 2: mean of 5 seeds, in the order of LRA; average, speed and memory beside the
# Transformer's, training on Text with 4K input. The values of what we train stand in the recipes.
PAPER2: Dict[str, Tuple[str, ...]] = {
    "Transformer": (*paper_values("table2", "transformer", LRA), "59.24", "1x", "1x"),
    "Transformer, as first published": ("36.37", "64.27", "57.46", "42.44", "71.40", "fails", "54.39", "-", "-"),
    "Reformer": ("37.27", "56.10", "53.40", "38.07", "68.50", "fails", "50.67", "0.8x", "0.24x"),
    "Linformer": ("35.70", "53.94", "52.27", "38.56", "76.34", "fails", "51.36", "5.5x", "0.10x"),
    "BigBird": ("36.05", "64.02", "59.29", "40.83", "74.87", "fails", "55.01", "1.1x", "0.30x"),
    "Performer": ("18.01", "65.40", "53.82", "42.77", "77.05", "fails", "51.41", "5.7x", "0.11x"),
    "Luna-256": ("37.98", "65.78", "79.56", "47.86", "78.55", "fails", "61.95", "4.9x", "0.16x"),
    "S4D-Inv": (*paper_values("table2", "s4d", LRA), "85.50", "-", "-"),
    "S4-v1": ("58.35", "76.02", "87.09", "87.26", "86.05", "88.10", "80.48", "-", "-"),
    "S4-v2": ("59.60", "86.82", "90.90", "88.65", "94.20", "96.35", "86.09", "-", "-"),
    "S4-v2 (re-run)": ("59.10", "86.53", "90.94", "88.48", "94.01", "96.07", "85.86", "4.8x", "0.14x"),
    "MEGA": (*paper_values("table2", "mega", LRA), "88.21", "2.9x", "0.31x"),
    "MEGA-chunk": (*paper_values("table2", "mega_chunk", LRA), "85.66", "5.5x", "0.13x"),
}
BASELINES = {"Transformer": "transformer", "S4D-Inv": "s4d"}
SPEED_NAMES = {"Transformer": "transformer", "MEGA": "mega", "MEGA-chunk": "mega-chunk"}
# Table 3: Text and Image, full attention.
PAPER3 = {name: tuple(paper_values("table3", name, ["text", "image"])) for name in ("softmax", "relu2", "laplace")}
# Table 4: parameters and accuracy; S4 is the paper's re-run.
PAPER4 = {
    "Transformer": ("786K", "not runnable"),
    "S4": ("300K", "97.50"),
    "MEGA-chunk base": ("300K", *paper_values("table4", "base", ["speech"])),
    "MEGA-chunk big": ("476K", *paper_values("table4", "big", ["speech"])),
}


TABLE_2 = PaperTable(
    ["Table 2, test accuracy", *(TASKS[task].title for task in LRA), "average", "speed", "memory"],
    PAPER2,
    {**BASELINES, **SPEED_NAMES},
    {title: recipe.values_from for title, model in BASELINES.items() for recipe in find(f"mega/table2/text/{model}")},
)
TABLE_3 = PaperTable(["Table 3, test accuracy", "Text", "Image"], PAPER3, {name: name for name in PAPER3})
TABLE_4 = PaperTable(
    ["Table 4, test accuracy", "parameters", "SC10"],
    PAPER4,
    {"MEGA-chunk base": "mega-base", "MEGA-chunk big": "mega-big"},
)


def speed_cells(speed: Optional[Result], model: str) -> List[str]:
    """Speed and memory of a model beside those of the first one that was measured."""
    scores = speed["scores"] if speed is not None else {}
    keys = [f"{model} {column}" for column in ("speed", "memory")]
    return [f"{scores[key]:.2f}x" if key in scores else "-" for key in keys]


def table2(results: Sequence[Result], speed: Optional[Result] = None) -> Table:
    """Accuracy of all tasks; MEGA-chunk once more for chunks that are not the paper's."""

    def measured(model: str) -> Rows:
        cells = [select(results, task=task, model=model) for task in LRA]
        if model in ("mega", "mega-chunk"):
            chunked = model == "mega-chunk"
            cells = [mega(results, task, TASKS[task].chunk if chunked else -1) for task in LRA]
        return measured_rows("  measured", cells, [average(cells), *speed_cells(speed, model)])

    table = TABLE_2.beside(measured)
    rows = [*table.rows]
    usual = {task: {-1, TASKS[task].chunk} for task in LRA}
    others = {result["settings"]["chunk"] for task in LRA for result in select(results, task=task, model="mega")}
    for chunk in sorted(others):
        cells = [[] if chunk in usual[task] else mega(results, task, chunk) for task in LRA]
        if any(cells):
            rows += measured_rows(f"MEGA-chunk, C = {chunk}, measured", cells, ["-", "-", "-"])
    return Table(table.columns, rows)


def speed_note(speed: Optional[Result]) -> List[str]:
    """Where speed and memory were measured."""
    if speed is None:
        return []
    gpus = speed["hardware"].get("gpus") or [speed["hardware"].get("processor", "CPU")]
    base = speed["settings"].get("models", "transformer").split(",")[0]
    return [f"speed and memory measured: {speed['label']}, beside {base} (1x), on {gpus[0]}"]


def table3(results: Sequence[Result], chunk: int) -> Table:
    """Accuracy of the attention functions."""
    attention = "full attention" if chunk < 0 else f"chunks of {chunk}"

    def measured(function: str) -> Rows:
        cells = [mega(results, task, chunk, function) for task in ("text", "image")]
        return measured_rows(f"  measured, {attention}", cells, [])

    return TABLE_3.beside(measured)


def table4(results: Sequence[Result], chunk: int) -> Table:
    """Parameters and accuracy on raw speech."""

    def measured(model: str) -> Rows:
        runs, rows = select(results, task="speech", model=model, chunk=chunk), []
        for scaling in sorted({scaling_of(run) for run in runs}) or [""]:
            found = [run for run in runs if scaling_of(run) == scaling]
            rows += speech_rows(f"  measured, C = {chunk}{scaling}", found)
        return rows

    return TABLE_4.beside(measured)


def print_table(
    table: Table, used: Sequence[Result], options: argparse.Namespace, speed: Optional[Result] = None
) -> None:
    """Print a table, and below it the runs that are in it."""
    below = options.format == "terminal"
    tables = [table, run_table(used)] if used and not below else [table]
    lines = run_lines(used)[1:] if used and below else []
    show(options, tables, used, [*speed_note(speed), *lines, *notes(used)])
    if options.format == "csv":
        return
    print("paper: mean of 5 seeds; measured: test accuracy of the checkpoint of best validation accuracy")
    if any(row[0].endswith("quoted") for row in table.rows):
        print("quoted: from the paper; no recipe trains this row")
    warn_of_smoke(options)


def add_table2_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``table2``."""
    add_results(parser)
    parser.add_argument("--speed", type=Path, help="result file of python -m fairseq_mega.lab.benchmarks lra-speed")


def run_table2(options: argparse.Namespace) -> None:
    """Print Table 2."""
    results = given_results(options, BENCHMARK)
    speed = None if options.speed is None else read_result(options.speed)
    used = [run for model in BASELINES.values() for run in select(results, model=model)]
    chunks = sorted({result["settings"]["chunk"] for result in results})
    used += [run for task in LRA for chunk in chunks for run in mega(results, task, chunk)]
    print_table(table2(results, speed), used, options, speed)


def add_table3_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``table3``."""
    add_results(parser)
    parser.add_argument("--chunk", type=int, default=-1, help="attention chunk (default: -1, full attention)")


def run_table3(options: argparse.Namespace) -> None:
    """Print Table 3."""
    results = given_results(options, BENCHMARK)
    used = [run for task in ("text", "image") for kind in PAPER3 for run in mega(results, task, options.chunk, kind)]
    print_table(table3(results, options.chunk), used, options)


def add_table4_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``table4``."""
    add_results(parser)
    default = TASKS["speech"].chunk
    parser.add_argument("--chunk", type=int, default=default, help="attention chunk (default: %(default)s)")


def run_table4(options: argparse.Namespace) -> None:
    """Print Table 4."""
    results = given_results(options, BENCHMARK)
    print_table(table4(results, options.chunk), select(results, task="speech", chunk=options.chunk), options)


TABLE2 = Report("Print MEGA's Table 2: the Long Range Arena.", add_table2_options, run_table2)
TABLE3 = Report("Print MEGA's Table 3: attention functions.", add_table3_options, run_table3)
TABLE4 = Report("Print MEGA's Table 4: raw speech.", add_table4_options, run_table4)
