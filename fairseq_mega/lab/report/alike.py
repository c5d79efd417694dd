"""Results of a table whose cells are means over seeds: all results of a cell are measured under the same conditions."""

import argparse
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any, Dict, FrozenSet, List, Mapping, Tuple

from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.runs.report import benchmark_read
from fairseq_mega.lab.runs.results import EXTRA, SET, Result, ResultError, is_trained_here, read_files

CONDITIONS = "conditions"  # setting of fairseq-mega-reproduce's results; earlier versions lack it
DATA = "data_digest"  # setting: of the training's data; earlier versions lack it
MORE = ("checkpoint", "scaling", "segments", "chunk_size", "context_window")  # settings that distinguish rows
DIFFERING = (
    SET,
    EXTRA,
    "precision",
    "updates",
    "max_update",
    "data",
    DATA,
    "lr",
)  # settings of the conditions, and the rate
PAPERS = ("mega/", "megalodon/")  # folders of the recipes of their tables


@lru_cache(maxsize=None)
def names_of_cells() -> FrozenSet[str]:
    """Return the settings that distinguish the cells of tables."""
    return frozenset([*MORE, *(name for recipe in catalogue().values() for name in recipe.cell)])


def cell_of(settings: Mapping[str, Any]) -> Tuple[Tuple[str, str], ...]:
    """Name the cell of a result by its settings."""
    return tuple(sorted((name, str(settings[name])) for name in names_of_cells() & settings.keys()))


def check_alike(files: Mapping[Path, Result]) -> None:
    """Raise a ResultError that names two results of one cell that were trained under different conditions."""
    first: Dict[Any, Path] = {}
    for path, result in files.items():
        settings = result["settings"]
        if CONDITIONS not in settings or not is_trained_here(result):
            continue
        other = first.setdefault((result["benchmark"], cell_of(settings)), path)
        one = files[other]["settings"]
        both = [DATA] if DATA in one and DATA in settings else []
        if any(one.get(name) != settings.get(name) for name in (CONDITIONS, "lr", *both)):
            raise ResultError(
                f"{other} and {path.name} are of one cell, with different settings ({difference(one, settings)}): "
                "give one of the folders in OUT/tables, where fairseq-mega-reproduce keeps them apart"
            )


def difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Return the differences between the conditions of two results, in words."""
    pairs = {name: (one.get(name, "none"), other.get(name, "none")) for name in DIFFERING}
    told = [f"{name}: {first} and {second}" for name, (first, second) in pairs.items() if first != second]
    return "; ".join(told) or "--keep-schedule or --max-update"


def is_of_paper(result: Result) -> bool:
    """Return whether a result is of a paper's recipe or of a user's own, and not of the package's other recipes."""
    recipe = str(result["settings"].get("recipe", ""))
    return recipe.startswith(PAPERS) or recipe not in catalogue()


def read_alike(options: argparse.Namespace, benchmark: str) -> List[Result]:
    """Read the results that the options of a report select, without results of recipes that have no paper.

    Raises:
        ResultError: if results of one cell were trained under different conditions.
    """
    files = read_files(options.results, benchmark_read(options, benchmark))
    kept = {path: result for path, result in files.items() if is_of_paper(result)}
    others = sorted({result["settings"]["recipe"] for path, result in files.items() if path not in kept})
    if others:
        told = f"{len(files) - len(kept)} results of recipes that are not in a paper's table ({', '.join(others)})"
        print(f"left out: {told}", file=sys.stderr)
    check_alike(kept)
    return list(kept.values())
