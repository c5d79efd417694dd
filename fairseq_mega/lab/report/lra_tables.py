"""MEGA's Tables 2, 3 and 4, and MEGALODON's Tables 6 and 7: the Long Range Arena and raw speech."""

import argparse
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from fairseq_mega.lab.evaluate.lra_runs import BENCHMARK, LRA, TASKS, Result, mega, scaling_of, select
from fairseq_mega.lab.recipes.catalogue import find
from fairseq_mega.lab.recipes.paper_values import paper_values
from fairseq_mega.lab.report.lra_cells import (
    INTERPRETATION,
    average,
    measured_rows,
    notes,
    run_lines,
    run_table,
    speech_rows,
)
from fairseq_mega.lab.report.paper_table import PaperTable, Rows, SpeedColumns
from fairseq_mega.lab.runs.report import add_results, other_settings, show, warn_of_smoke
from fairseq_mega.lab.runs.results import is_trained_here, read_result

FULL, SPEECH_CHUNK = -1, TASKS["speech"].chunk
RECIPES = ("mega/table2", "mega/table3", "mega/figure4", "mega/figure5")  # models whose trainings are in several tables
BASELINES = {"Transformer": "transformer", "S4D-Inv": "s4d"}
SPEED_NAMES = {"Transformer": "transformer", "MEGA": "mega", "MEGA-chunk": "mega-chunk"}


def chunks_of(chunked: bool) -> Dict[str, int]:
    """Return the papers' chunk of each task of the Long Range Arena, or full attention."""
    return {task: TASKS[task].chunk if chunked else FULL for task in LRA}


def speed_cells(speed: Optional[Result], model: str) -> List[str]:
    """Return speed and memory of a model, relative to the first measured model."""
    scores = speed["scores"] if speed is not None else {}
    keys = [f"{model} {column}" for column in ("speed", "memory")]
    return [f"{scores[key]:.2f}x" if key in scores else "-" for key in keys]


def speed_note(speed: Optional[Result] = None) -> List[str]:
    """Return a line that names the machine of the speed and memory; no line without a result."""
    if speed is None:
        return []
    gpus = speed["hardware"].get("gpus") or [speed["hardware"].get("processor", "CPU")]
    base = speed["settings"].get("models", "transformer").split(",")[0]
    return [f"speed and memory measured: {speed['label']}, beside {base} (1x), on {gpus[0]}"]


def table2_rows(results: Sequence[Result], model: str, speed: Optional[Result] = None) -> Rows:
    """Return the accuracy of all tasks; below MEGA-chunk also the accuracy with other chunks than the paper's."""
    if model in BASELINES.values():
        cells = [select(results, task=task, model=model) for task in LRA]
    else:
        cells = [mega(results, task, chunk) for task, chunk in chunks_of(model == "mega-chunk").items()]
    rows = measured_rows("  measured", cells, [average(cells), *speed_cells(speed, model)])
    return rows + (other_chunks(results) if model == "mega-chunk" else [])


def other_chunks(results: Sequence[Result]) -> Rows:
    """Return rows of MEGA-chunk with other chunks than the paper's."""
    rows: Rows = []
    found = {result["settings"]["chunk"] for task in LRA for result in select(results, task=task, model="mega")}
    for chunk in sorted(found):
        cells = [[] if chunk in (FULL, TASKS[task].chunk) else mega(results, task, chunk) for task in LRA]
        rows += measured_rows(f"MEGA-chunk, C = {chunk}, measured", cells, ["-", "-", "-"]) if any(cells) else []
    return rows


def table2_runs(results: Sequence[Result], **_: Any) -> List[Result]:
    """Return the results of Table 2."""
    chunks = sorted({result["settings"]["chunk"] for result in results})
    baselines = [run for model in BASELINES.values() for run in select(results, model=model)]
    return baselines + [run for task in LRA for chunk in chunks for run in mega(results, task, chunk)]


def table3_rows(results: Sequence[Result], function: str, chunk: int = FULL) -> Rows:
    """Accuracy of an attention function."""
    attention = "full attention" if chunk < 0 else f"chunks of {chunk}"
    cells = [mega(results, task, chunk, function) for task in ("text", "image")]
    return measured_rows(f"  measured, {attention}", cells, [])


def table3_runs(results: Sequence[Result], chunk: int) -> List[Result]:
    """Return the results of Table 3."""
    return [run for task in ("text", "image") for kind in TABLE3.rows for run in mega(results, task, chunk, kind)]


def table4_rows(results: Sequence[Result], model: str, chunk: int = SPEECH_CHUNK) -> Rows:
    """Return parameters and accuracy on raw speech, in separate rows for each scaling."""
    runs, rows = select(results, task="speech", model=model, chunk=chunk), []
    for scaling in sorted({scaling_of(run) for run in runs}) or [""]:
        found = [run for run in runs if scaling_of(run) == scaling]
        rows += speech_rows(f"  measured, C = {chunk}{scaling}", found)
    return rows


def table4_runs(results: Sequence[Result], chunk: int) -> List[Result]:
    """Results on speech."""
    return select(results, task="speech", chunk=chunk)


def megalodon6_rows(results: Sequence[Result], attention: str) -> Rows:
    """Accuracy of all tasks."""
    chunks = chunks_of(attention == "chunked")
    cells = [select(results, task=task, model="megalodon", chunk=chunk) for task, chunk in chunks.items()]
    return measured_rows("  measured", cells, [average(cells)])


def megalodon7_rows(results: Sequence[Result], model: str) -> Rows:
    """Parameters and accuracy on raw speech."""
    return speech_rows("  measured", select(results, task="speech", model=model, chunk=SPEECH_CHUNK))


def megalodon_runs(results: Sequence[Result], tasks: Sequence[str]) -> List[Result]:
    """Return the results of MEGALODON on some tasks, with full attention and with the papers' chunks."""
    return [
        run
        for task in tasks
        for chunk in (FULL, TASKS[task].chunk)
        for run in select(results, task=task, model="megalodon", chunk=chunk)
    ]


def add_speed(parser: argparse.ArgumentParser) -> None:
    """Add the options of Table 2."""
    add_results(parser)
    parser.add_argument("--speed", type=Path, help="result file of python -m fairseq_mega.lab.benchmarks lra-speed")


def add_chunk(parser: argparse.ArgumentParser, default: int, shown: str = "") -> None:
    """Add the options of a table of one attention chunk."""
    add_results(parser)
    parser.add_argument("--chunk", type=int, default=default, help=f"attention chunk (default: %(default)s{shown})")


def run(
    table: PaperTable,
    options: argparse.Namespace,
    runs: Callable[..., List[Result]],
    settings: Sequence[str] = (),
) -> None:
    """Print a table, and below it its results.

    Args:
        runs: selects these results, like ``table.measured``.
        settings: options for both.
    """
    results = table.read(options)
    given = {name: getattr(options, name) for name in settings}
    if given.get("speed") is not None:
        given["speed"] = read_result(given["speed"])
    used = runs(list(filter(is_trained_here, results)), **given)
    others = [result for result in results if not is_trained_here(result)]
    below = options.format == "terminal"
    tables = [table.of(results, **given), *([run_table(used)] if used and not below else [])]
    lines = run_lines(used)[1:] if used and below else []
    show(options, tables, used, [*speed_note(given.get("speed")), *lines, *notes(used), *other_settings(others)])
    if options.format == "csv":
        return
    print("paper: mean of 5 seeds; measured: test accuracy of the checkpoint of best validation accuracy")
    if any(row[0].endswith("quoted") for row in tables[0].rows):
        print("quoted: from the paper; no recipe trains this row")
    warn_of_smoke(options.smoke)
    for note in table.notes:
        print(note)


# MEGA (Ma et al., ICLR 2023), Table 2: mean of 5 seeds, in the order of LRA; average, speed and memory beside the
# Transformer's, training on Text with 4K input. The values of models that recipes train are in the recipes.
TABLE2 = PaperTable(
    "MEGA, Table 2: the Long Range Arena",
    (BENCHMARK,),
    RECIPES,
    ["Table 2, test accuracy", *(TASKS[task].title for task in LRA), "average", "speed", "memory"],
    {
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
    },
    {**BASELINES, **SPEED_NAMES},
    table2_rows,
    {title: recipe.values_from for title, model in BASELINES.items() for recipe in find(f"mega/table2/text/{model}")},
    speed=SpeedColumns({"task": "text"}, ["lra-speed", "--length", "4096"]),
    add_options=add_speed,
    run=partial(run, runs=table2_runs, settings=["speed"]),
)
TABLE3 = PaperTable(
    "MEGA, Table 3: attention functions",
    (BENCHMARK,),
    RECIPES,
    ["Table 3, test accuracy", "Text", "Image"],
    {name: tuple(paper_values("table3", name, ["text", "image"])) for name in ("softmax", "relu2", "laplace")},
    {name: name for name in ("softmax", "relu2", "laplace")},
    table3_rows,
    add_options=partial(add_chunk, default=FULL, shown=", full attention"),
    run=partial(run, runs=table3_runs, settings=["chunk"]),
)
# S4 is the paper's re-run.
TABLE4 = PaperTable(
    "MEGA, Table 4: raw speech",
    (BENCHMARK,),
    ("mega/table4",),
    ["Table 4, test accuracy", "parameters", "SC10"],
    {
        "Transformer": ("786K", "not runnable"),
        "S4": ("300K", "97.50"),
        "MEGA-chunk base": ("300K", *paper_values("table4", "base", ["speech"])),
        "MEGA-chunk big": ("476K", *paper_values("table4", "big", ["speech"])),
    },
    {"MEGA-chunk base": "mega-base", "MEGA-chunk big": "mega-big"},
    table4_rows,
    add_options=partial(add_chunk, default=SPEECH_CHUNK),
    run=partial(run, runs=table4_runs, settings=["chunk"]),
)
OF_TABLE2: Dict[str, Tuple[str, ...]] = {name: tuple(row[: len(LRA) + 1]) for name, row in TABLE2.rows.items()}
# MEGALODON (Ma et al., NeurIPS 2024), Tables 6 and 7; for other models they repeat MEGA's Tables 2 and 4.
MEGALODON6 = PaperTable(
    "MEGALODON, Table 6: the Long Range Arena",
    (BENCHMARK,),
    ("megalodon/table6",),
    ["MEGALODON, Table 6, test accuracy", *(TASKS[task].title for task in LRA), "average"],
    {
        **{name: OF_TABLE2[name] for name in ("Transformer", "Reformer", "Linformer", "BigBird", "Luna-256")},
        "S4": OF_TABLE2["S4-v2 (re-run)"],
        "MEGA-chunk": OF_TABLE2["MEGA-chunk"],
        "MEGA": OF_TABLE2["MEGA"],
        "MEGALODON": (*paper_values("table6", "megalodon", LRA, paper="megalodon"), "88.63"),
        "MEGALODON-chunk": (*paper_values("table6", "megalodon_chunk", LRA, paper="megalodon"), "87.62"),
    },
    {"Transformer": None, "MEGA-chunk": None, "MEGA": None, "MEGALODON": "full", "MEGALODON-chunk": "chunked"},
    megalodon6_rows,
    notes=(INTERPRETATION,),
    run=partial(run, runs=partial(megalodon_runs, tasks=LRA)),
)
MEGALODON7 = PaperTable(
    "MEGALODON, Table 7: raw speech",
    (BENCHMARK,),
    ("megalodon/table7",),
    ["MEGALODON, Table 7, test accuracy", "parameters", "SC10"],
    {
        **TABLE4.rows,
        "MEGALODON-chunk": ("300K", *paper_values("table7", "megalodon", ["speech"], paper="megalodon")),
    },
    {"MEGA-chunk base": None, "MEGA-chunk big": None, "MEGALODON-chunk": "megalodon"},
    megalodon7_rows,
    notes=(INTERPRETATION,),
    run=partial(run, runs=partial(megalodon_runs, tasks=["speech"])),
)
