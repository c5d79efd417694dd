"""Reports of result files; all results of a cell that is a mean over seeds are measured under the same conditions."""

import argparse
from functools import lru_cache
from pathlib import Path
from typing import Any, Callable, Dict, FrozenSet, List, Mapping, NamedTuple, Sequence, Tuple

from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.runs.plotting import Panel, draw_panels
from fairseq_mega.lab.runs.report import (
    Report,
    add_drawing,
    add_results,
    all_results,
    benchmark_read,
    show,
    warn_of_smoke,
)
from fairseq_mega.lab.runs.results import (
    EXTRA,
    GIVEN,
    SET,
    Result,
    ResultError,
    chosen_runs,
    is_trained_here,
    read_files,
    with_changes,
)
from fairseq_mega.lab.runs.text_tables import Table, table_of

CONDITIONS = "conditions"  # setting of fairseq-mega-reproduce's results
DATA = "data_digest"  # setting: of the training's data
EVALUATION = "evaluation"  # setting: the name of a run's evaluation
TRAINING = "training_digest"  # setting: all that the weights depend on, except seed and data
ALIKE = (CONDITIONS, DATA, TRAINING, EVALUATION, "lr")  # of all results of a cell that record them
# Settings that distinguish rows.
MORE = ("checkpoint", "scaling", "segments", "chunk_size", "context_window", "attention_window")
SHOWN = ("parameters", "updates", "lr")  # settings of a table of scores, beside those of cells
NAMED = (SET, EXTRA, "precision", "updates", "max_update", "data", DATA, "lr", TRAINING, EVALUATION)  # in an error
PAPERS = ("mega/", "megalodon/")  # folders of the recipes of their tables
PRECISIONS = ("fp32", "tf32", "bf16", "fp16")  # the most exact first


@lru_cache(maxsize=None)
def names_of_cells() -> FrozenSet[str]:
    """Return the settings that distinguish the cells of tables."""
    return frozenset(
        [*MORE, "context", "exact_context", *(name for recipe in catalogue().values() for name in recipe.cell)]
    )


def cell_of(settings: Mapping[str, Any]) -> Tuple[Tuple[str, str], ...]:
    """Name the cell of a result by its settings."""
    return tuple(sorted((name, str(settings[name])) for name in names_of_cells() & settings.keys()))


def source_of(result: Result) -> Any:
    """Return the source of a result, of which a mean has one result: a seed, or the digest of given weights."""
    return result["seed"] if is_trained_here(result) else result["settings"][GIVEN]["sha256"]


def check_alike(files: Mapping[Path, Result]) -> None:
    """Raise a ResultError that names two results of one cell that were trained or scored differently, or of one seed.

    Results of given weights are rows of their own: only a second result of the same weights is an error.
    """
    cells: Dict[Any, Dict[Path, Result]] = {}
    for path, result in files.items():
        given = None if is_trained_here(result) else source_of(result)
        others = cells.setdefault((result["benchmark"], cell_of(result["settings"]), given), {})
        for place, other in others.items():
            both = f"{place} and {path.name} are of one cell"
            if given is None and not are_alike(other["settings"], result["settings"]):
                raise ResultError(
                    f"{both}, with different settings ({difference(other['settings'], result['settings'])}): give one "
                    "of the folders in OUT/tables, where fairseq-mega-reproduce separates them"
                )
            if source_of(other) == source_of(result):
                origin = f"seed {source_of(result)}" if given is None else f"the same weights, SHA-256 {given}"
                raise ResultError(f"{both} and of {origin}, and would count twice: remove one of them")
        others[path] = result


def are_alike(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two results of trainings may be in one mean, as far as their settings show.

    An evaluation is compared without the table or figure that it was made for.
    """
    pair = [
        {**settings, EVALUATION: settings[EVALUATION].rpartition("-")[2]} if EVALUATION in settings else settings
        for settings in (one, other)
    ]
    return all(pair[0][name] == pair[1][name] for name in ALIKE if all(name in settings for settings in pair))


def difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Return the differences between the settings of two results, in words."""
    pairs = {name: (one.get(name, "none"), other.get(name, "none")) for name in NAMED}
    found = [f"{name}: {first} and {second}" for name, (first, second) in pairs.items() if first != second]
    return "; ".join(found) or "--max-update"


def is_of_paper(result: Result) -> bool:
    """Return whether a result is of a paper's recipe or of a user's own, and not of the package's other recipes."""
    recipe = str(result["settings"].get("recipe", ""))
    return recipe.startswith(PAPERS) or recipe not in catalogue()


def read_alike(options: argparse.Namespace, benchmark: str) -> List[Result]:
    """Read the results that the options of a report select, without results of recipes that have no paper.

    Raises:
        ResultError: if results of one cell were trained or scored differently, or are of one seed.
    """
    files = read_files(options.results, benchmark_read(options, benchmark))
    kept = {path: result for path, result in files.items() if is_of_paper(result)}
    check_alike(kept)
    return list(kept.values())


class Contents(NamedTuple):
    """The contents of a report: tables, the results in them, lines below them, and the panels of a picture."""

    tables: Sequence[Table]
    results: Sequence[Result]
    notes: Sequence[str] = ()
    panels: Sequence[Panel] = ()


def scores_table(results: Sequence[Result]) -> Table:
    """Return a row for each result, or each seed of a cell: its size, the settings that differ, and the scores."""
    runs = [{**result, **run} for result in results for run in chosen_runs(result) or [result]]
    known = dict.fromkeys(name for run in runs for name in run["settings"] if name in names_of_cells() | {*SHOWN})
    names = [name for name in known if name in SHOWN or len({str(run["settings"].get(name)) for run in runs}) > 1]
    metrics = dict.fromkeys(name for run in runs for name in run["scores"])
    rows = []
    for run in runs:
        settings = {"seed": run["seed"], **run["settings"]}
        values = {name: f"{settings.get(name, '-')}" for name in ["seed", *names]}
        values.update((name, f"{run['scores'][name]:,.5g}" if name in run["scores"] else "-") for name in metrics)
        row = {"result": str(settings.get("recipe", run["label"])) + with_changes(run)}
        rows.append({**row, **{name.replace("_", " "): text for name, text in values.items()}})
    return table_of(rows)


def scores_of(results: Sequence[Result]) -> Contents:
    """Return the table of all scores."""
    return Contents([scores_table(results)], results)


def report_of(
    description: str,
    benchmarks: Sequence[str],
    contents: Callable[[List[Result]], Contents],
    read: Callable[[argparse.Namespace, str], List[Result]] = all_results,
    drawn: bool = False,
) -> Report:
    """Return the report of the results of some benchmarks, with the option --output if a picture is drawn.

    Its command fails if the first table has no row.
    """

    def run(options: argparse.Namespace) -> None:
        found = contents([result for benchmark in benchmarks for result in read(options, benchmark)])
        if not found.tables or not found.tables[0].rows:
            raise ResultError(f"{options.results} has no result of {', '.join(benchmarks)} for this report")
        if drawn:
            draw_panels(found.panels, options.output)
        show(options, [table for table in found.tables if table.rows], found.results, found.notes)
        if drawn:
            print(f"plot: {options.output}")
        warn_of_smoke(options.smoke)

    return Report(description, add_drawing if drawn else add_results, run, drawn)
