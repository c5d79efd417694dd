"""The classifiers of scripts/compare_classifiers.sh: a table, and a plot of their validation accuracies."""

import argparse
import re
import sys
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple

from fairseq_mega.lab.evaluate.lra_runs import TASKS, Result
from fairseq_mega.lab.runs.fingerprints import digest
from fairseq_mega.lab.runs.plotting import COLOURS, DASHES, MARKERS, Line, Panel, draw_panels
from fairseq_mega.lab.runs.report import Report, add_format, show, warn_of_smoke
from fairseq_mega.lab.runs.results import ResultError, read_results, with_changes
from fairseq_mega.lab.runs.text_tables import table_of

BENCHMARK = "compare-classifiers"
TITLES = {
    "mega": "MEGA",
    "mega-n0": "MEGA without EMA (N = 0)",
    "transformer": "Transformer, full attention",
    "megalodon": "MEGALODON (our interpretation)",
}


def model_of(result: Result) -> str:
    """Return the model of a result, a key of TITLES."""
    return str(result["settings"].get("model", result["label"]))


def schedule(result: Result) -> Tuple[int, float]:
    """Return the updates and the peak learning rate of a training."""
    return result["settings"]["updates"], float(result["settings"]["lr"])


def order(result: Result) -> Tuple[int, int, Tuple[int, float], int]:
    """Sort key: tasks as in MEGA's Table 2, MEGA first, rising updates, learning rates and seeds."""
    task = list(TASKS).index(result["settings"]["task"])
    return task, list(TITLES).index(model_of(result)), schedule(result), result["seed"]


def title(result: Result) -> str:
    """Return the name of a model with its chunk, and the changes of its recipe."""
    chunk = "" if model_of(result) == "transformer" else f", chunk {result['settings']['chunk']}"
    return TITLES[model_of(result)] + chunk + with_changes(result, "model.encoder_chunk_size")


def short_title(result: Result, with_chunk: bool) -> str:
    """Return the name of a model for a legend, and the changes of its recipe."""
    name = re.split(r",| \(", TITLES[model_of(result)])[0]
    chunk = f", chunk {result['settings']['chunk']}" if with_chunk and model_of(result) != "transformer" else ""
    return name + chunk + with_changes(result, "model.encoder_chunk_size")


def row(result: Result) -> Dict[str, str]:
    """Return the cells of a row of the table, by the titles of their columns."""
    scores, settings = result["scores"], result["settings"]
    seconds, memory = scores.get("seconds_per_epoch"), scores.get("peak_memory_gib")
    best, batch = scores.get("best_valid_accuracy"), settings.get("batch")  # none for given weights
    return {
        "task": TASKS[settings["task"]].title,
        "model": title(result),
        "learning rate": str(settings["lr"]),
        "seed": str(result["seed"]),
        "parameters": f"{settings['parameters']:,}",
        "updates x examples": f"{settings['updates']:,} x {batch}" if batch else f"{settings['updates']:,}",
        "test accuracy": f"{scores['test_accuracy']:.2f} % of {result['examples']:,}",
        "best validation accuracy": "-" if best is None else f"{best:.2f} %",
        "examples/s in training": "-" if seconds is None else f"{settings['train_examples'] / seconds:,.1f}",
        "peak GiB": "-" if memory is None else f"{memory:.2f}",
    }


def plot(results: Sequence[Result], output: Path, source: Optional[str] = None) -> None:
    """Draw validation accuracies, a panel per task: colour and marker show the model, dashes the schedule."""
    drawn = {result["settings"]["task"] for result in results if "curve" in result}
    tasks = [task for task in TASKS if task in drawn]
    chunks = {result["settings"]["chunk"] for result in results if model_of(result) != "transformer"}
    panels = []
    for task in tasks:
        found = [result for result in results if result["settings"]["task"] == task and "curve" in result]
        schedules = sorted({schedule(result) for result in found})
        lines: List[Line] = []
        for result in found:
            updates, rate = schedule(result)
            name = f"{short_title(result, len(chunks) > 1)}, {updates:,} updates, rate {rate:g}"
            model = list(TITLES).index(model_of(result))
            dashes = DASHES[schedules.index((updates, rate)) % len(DASHES)]
            style = {"color": COLOURS[model], "marker": MARKERS[model], "linestyle": dashes}
            points = [(point["updates"], point["accuracy"]) for point in result["curve"]]
            lines.append(Line(points, name, style))
        axes = {"title": TASKS[task].title, "xlabel": "updates", "ylabel": "validation accuracy (%)"}
        panels.append(Panel(lines, axes))
    draw_panels(panels, output, source=source)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``classifiers``."""
    parser.add_argument("results", type=Path, nargs="+", help="folders of result files")
    parser.add_argument("--benchmark", default=BENCHMARK, help="name in the result files (default: %(default)s)")
    add_format(parser, "markdown")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="also draw the validation accuracies")


def run(options: argparse.Namespace) -> None:
    """Print the table, and draw the plot."""
    results = sorted(
        (result for folder in options.results for result in read_results(folder, options.benchmark)), key=order
    )
    if not results:
        where = ", ".join(map(str, options.results))
        raise ResultError(f"no result of {options.benchmark} in {where}: run scripts/compare_classifiers.sh")
    show(options, [table_of(list(map(row, results)))])
    warn_of_smoke(options.benchmark.endswith("-smoke"))
    if options.plot and not any("curve" in result for result in results):
        print(f"{options.plot} is not drawn: given weights have no curve of a training", file=sys.stderr)
    elif options.plot:
        plot(results, options.plot, digest(results) if options.plot.suffix == ".png" else None)


REPORT = Report("Print the classifiers of scripts/compare_classifiers.sh as a table.", add_options, run)
