"""The Long Range Arena in miniature: a table that compares the models, from the files of the cells."""

import argparse
from pathlib import Path
from typing import List, Sequence

from fairseq_mega.lab.evaluate.lra_runs import TASKS
from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.report.alike import check_alike
from fairseq_mega.lab.runs.report import Report, add_results, other_settings, show, warn_of_smoke
from fairseq_mega.lab.runs.results import Result, ResultError, read_files
from fairseq_mega.lab.runs.text_tables import Table, table_of

MODELS = {
    "transformer": "Transformer",
    "s4d": "S4D",
    "mega": "MEGA",
    "mega_chunk": "MEGA-chunk",
    "megalodon_chunk": "MEGALODON-chunk",
}


def model_of(result: Result) -> str:
    """Return the key of the model in MODELS, the last part of the recipe's name; the name of a user's own recipe."""
    recipe = str(result["settings"]["recipe"])
    return recipe.rpartition("/")[2] if recipe in catalogue() else recipe


def cell(result: Result) -> str:
    """Return mean and deviation of the test accuracy, with the chosen rate."""
    scores, rate = result["scores"], result["settings"]["lr"]
    spread = f" ± {scores['deviation']:.2f}" if "deviation" in scores else ""
    return f"{scores['test_accuracy']:.2f}{spread} ({rate:g})"


def parameters(results: Sequence[Result]) -> str:
    """Return the sizes of a model, which depend on the tasks' symbols and classes."""
    sizes = sorted({result["settings"]["parameters"] for result in results})
    return f"{sizes[0]:,}" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,}"


def table(results: Sequence[Result]) -> Table:
    """Return a row for each model and each recipe of a user's own, and a column for each task."""
    tasks = [task for task in TASKS if any(result["settings"]["task"] == task for result in results)]
    others = sorted({model_of(result) for result in results} - {*MODELS})
    rows = []
    for model in (*MODELS, *others):
        own = {result["settings"]["task"]: result for result in results if model_of(result) == model}
        if own:
            cells = {TASKS[task].title: cell(own[task]) if task in own else "-" for task in tasks}
            rows.append({"model": MODELS.get(model, model), "parameters": parameters(list(own.values())), **cells})
    return table_of(rows)


def results_in(folder: Path) -> List[Result]:
    """The cells of the miniature in a folder.

    Raises:
        FileNotFoundError: if the folder does not exist.
        ResultError: if there is no cell, a cell is damaged, or two files of one cell have different settings.
    """
    files = read_files(folder, "cell")
    files = {path: result for path, result in files.items() if result["settings"]["report"] == "miniature"}
    if not files:
        raise ResultError(f"no cell of the miniature in {folder}: run fairseq-mega-reproduce miniature")
    check_alike(files)
    return list(files.values())


def notes(results: Sequence[Result]) -> List[str]:
    """Return lines that explain the numbers and list the missing runs."""
    runs = [run for result in results for run in result["runs"]]
    rates, seeds = (sorted({run[key] for run in runs}) for key in ("lr", "seed"))
    said = f"Test accuracy, mean and standard deviation over the seeds {', '.join(map(str, seeds))}, at the rate (in "
    said += (
        f"parentheses, of {', '.join(f'{rate:g}' for rate in rates)}) of the best mean accuracy on the validation set."
    )
    missing = [name for result in results for name in result["missing"]]
    return [said, *([f"Missing: {', '.join(missing)}"] if missing else [])]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the folder of cells, and the form of the table."""
    add_results(parser)
    parser.set_defaults(format="markdown")


def run(options: argparse.Namespace) -> None:
    """Print the table."""
    results = results_in(options.results)
    show(options, [table(results)], (), [*notes(results), *other_settings(results)])
    warn_of_smoke(any(result["settings"]["data"] == "invented" for result in results))


REPORT = Report("Print the Long Range Arena in miniature.", add_options, run)
