"""Table of ``python -m fairseq_mega.lab.benchmarks chunk-parallel``: memory where processes share a sequence."""

from pathlib import Path
from typing import Sequence

from fairseq_mega.lab.runs.results import read_result
from fairseq_mega.lab.runs.text_tables import Table

from .layers import title
from .numbers import by_subject, mebibytes, points_of


def memory(folder: Path, words: Sequence[str]) -> Table:
    """A row for each number of processes: the largest memory of one, and its share of what one process alone needs."""
    (name,) = words
    result = read_result(folder / name)
    found, settings = by_subject(result["scores"], "N"), result["settings"]
    models = [title(f"{model}-chunk", settings["chunk"]) for model in found]
    rows = []
    for size in points_of(found):
        cells = []
        for points in found.values():
            needed, alone = points[size]["memory_mib"], points[min(points)]["memory_mib"]
            cells.append(f"{mebibytes(needed)} ({needed / alone:.2f})")
        rows.append([str(size), f"{-(-settings['length'] // size):,}", *cells])
    return Table(["processes", "tokens of each", *models], rows)
