"""Results of a table whose cells are means over seeds: all results of a cell are measured under the same conditions."""

import argparse
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any, Dict, FrozenSet, List, Mapping, Sequence, Tuple

from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.runs.report import benchmark_read
from fairseq_mega.lab.runs.results import (
    EXTRA,
    GIVEN,
    SET,
    Result,
    ResultError,
    changes_of,
    is_trained_here,
    read_files,
)

CONDITIONS = "conditions"  # setting of fairseq-mega-reproduce's results; earlier versions lack it
DATA = "data_digest"  # setting: of the training's data; earlier versions lack it
EVALUATION = "evaluation"  # setting: the name of a run's evaluation; earlier versions lack it
TRAINING = "training_digest"  # setting: all that the weights depend on, except seed and data; earlier versions lack it
MORE = ("checkpoint", "scaling", "segments", "chunk_size", "context_window")  # settings that distinguish rows
CHANGES = (SET, EXTRA)
DIFFERING = (*CHANGES, "precision", "updates", "max_update", "data", DATA, "lr")  # named in an error
PAPERS = ("mega/", "megalodon/")  # folders of the recipes of their tables


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
    cells: Dict[Any, List[Path]] = {}
    for path, result in files.items():
        given = None if is_trained_here(result) else source_of(result)
        changes = "" if CONDITIONS in result["settings"] else changes_of(result)  # which have a row of their own
        others = cells.setdefault((result["benchmark"], cell_of(result["settings"]), given, changes), [])
        for other in others:
            both = f"{other} and {path.name} are of one cell"
            if given is None and not are_alike(files[other], result):
                differing = difference(files[other]["settings"], result["settings"])
                raise ResultError(
                    f"{both}, with different settings ({differing}): give one of the folders in OUT/tables, where "
                    "fairseq-mega-reproduce separates them"
                )
            if source_of(files[other]) == source_of(result):
                origin = f"seed {source_of(result)}" if given is None else f"the same weights, SHA-256 {given}"
                raise ResultError(f"{both} and of {origin}, and would count twice: remove one of them")
        others.append(path)


def are_alike(one: Result, other: Result) -> bool:
    """Return whether two results of trainings may be in one mean, as far as their settings show."""
    pair = [{**result["settings"], "precision": precision_of(result)} for result in (one, other)]
    names = [DATA, TRAINING, "lr"]
    names += [CONDITIONS] if all(CONDITIONS in settings for settings in pair) else ["precision"]
    if not any(settings.get(name) for settings in pair for name in CHANGES) and all(map(has_fixed_updates, pair)):
        names += ["updates"]
    evaluations = {settings[EVALUATION].rpartition("-")[2] for settings in pair if EVALUATION in settings}
    return len(evaluations) < 2 and all(
        pair[0][name] == pair[1][name] for name in names if pair[0].keys() & pair[1].keys() >= {name}
    )


def precision_of(result: Result) -> str:
    """Return the precision of a result for a comparison: TF32 counts as float32, as in the conditions."""
    return str(result["settings"].get("precision", "fp32")).replace("tf32", "fp32")


def has_fixed_updates(settings: Mapping[str, Any]) -> bool:
    """Return whether a training ends after a number of updates: a user's recipe may end by the clock."""
    return str(settings.get("recipe", "")).startswith(PAPERS)


def difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Return the differences between the conditions of two results, in words."""

    def compare(names: Sequence[str]) -> str:
        pairs = {name: (one.get(name, "none"), other.get(name, "none")) for name in names}
        return "; ".join(f"{name}: {first} and {second}" for name, (first, second) in pairs.items() if first != second)

    if CONDITIONS in one and CONDITIONS in other and one[CONDITIONS] != other[CONDITIONS]:
        return compare(DIFFERING) or "--keep-schedule or --max-update"
    return compare([*DIFFERING, TRAINING, EVALUATION])


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
    others = sorted({result["settings"]["recipe"] for path, result in files.items() if path not in kept})
    if others:
        omitted = f"{len(files) - len(kept)} results of recipes that are not in a paper's table ({', '.join(others)})"
        print(f"omitted: {omitted}", file=sys.stderr)
    check_alike(kept)
    return list(kept.values())
