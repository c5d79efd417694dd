"""Result files of all runs in one folder, and the table or figure of those that belong to a command."""

import shutil
from pathlib import Path
from typing import Any, Dict, List, Sequence

from fairseq_mega.lab.report.command import main as report
from fairseq_mega.lab.runs.fingerprints import digest
from fairseq_mega.lab.runs.results import read_result, write_result

from .evaluating import results_of
from .released import is_generated
from .runs import Run
from .wishes import Wishes

OF_CELLS = ("miniature",)  # reports that read the files of cells, the others those of single runs
FIGURES = ("figure4", "figure5", "figure6", "megalodon-figure4", "megalodon-figure5")


def record(run: Run, wishes: Wishes) -> List[Path]:
    """Copy the results of a run to the folder of all results, with the conditions they were measured under.

    Returns the files, which are there whole or not at all.
    """
    written = []
    for path in sorted(results_of(run).glob("*.json")):
        result = read_result(path)
        result["settings"] = {**result["settings"], **about(run, wishes)}
        result["settings"].setdefault("seed", run.seed)
        target = results_folder(wishes) / f"{run.recipe.report}.{path.name}"
        write_result(target, {**result, "seed": run.seed})
        written.append(target)
    return written


def about(run: Run, wishes: Wishes) -> Dict[str, Any]:
    """Settings for a result file: where the number comes from, and what it may be compared with."""
    return {
        "recipe": run.recipe.name,
        "run": run.name,
        "precision": wishes.used_precision,
        "data": data_of(run, wishes),
        "conditions": digest(wishes.conditions()),
        **run.recipe.cell,
    }


def data_of(run: Run, wishes: Wishes) -> str:
    """Where the data of a run come from, for its result: generated, released, or made up for a smoke run."""
    if run.smoke:
        return "made up"
    if run.recipe.measured:
        return "random tokens"
    if wishes.processed is not None:
        return "released, processed by the authors"
    return "generated" if is_generated(run.data) else "released"


def results_folder(wishes: Wishes) -> Path:
    """All result files of a folder of runs."""
    return wishes.results or wishes.out / "results"


def cells_folder(wishes: Wishes) -> Path:
    """The files of :mod:`fairseq_mega.lab.reproduce.cells`."""
    return wishes.out / "cells"


def table_folder(name: str, wishes: Wishes) -> Path:
    """A folder of the results of a report that were measured under the same conditions, made anew."""
    folder = wishes.out / "tables" / f"{name}-{digest(wishes.conditions())}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    seen = set()
    for path in sorted((cells_folder if name in OF_CELLS else results_folder)(wishes).glob("*.json")):
        result = read_result(path)
        same = result["settings"].get("conditions") == digest(wishes.conditions())
        named = path.name.split(".", 1)
        if same and named[1] not in seen and belongs(named[0], name):
            seen.add(named[1])
            shutil.copyfile(path, folder / named[1])
    return folder


def belongs(report_name: str, name: str) -> bool:
    """Whether results of one report are those of another one, too: classifiers of the arena are."""
    arena = ("table2", "table3", "table4", "figure4", "figure5")
    return report_name == name or (report_name in arena and name in arena)


def print_report(name: str, wishes: Wishes, options: Sequence[str]) -> int:
    """Print a table or plot a figure of the package's reports; returns the exit status."""
    folder = table_folder(name, wishes)
    words = [name, str(folder), *(["--smoke"] if wishes.smoke and name != "figure6" else []), *options]
    if name in FIGURES and "--output" not in options:
        words += ["--output", str(wishes.out / f"{name}.png")]
    return report(words)
