"""Table of ``python -m fairseq_mega.lab.benchmarks chunk-parallel``: memory where processes share a sequence."""

from pathlib import Path
from typing import Sequence

from fairseq_mega.lab.runs.results import read_result
from fairseq_mega.lab.runs.text_tables import Table, table_of

from .layers import title
from .numbers import by_subject, mebibytes, points_of


def memory(folder: Path, words: Sequence[str]) -> Table:
    """Table with a row for each number of processes: the largest memory of a process, and its share of one process's
    memory.
    """
    (name,) = words
    result = read_result(folder / name)
    found, settings = by_subject(result["scores"], "N"), result["settings"]
    rows = []
    for size in points_of(found):
        cells = {}
        for model, points in found.items():
            needed, alone = points[size]["memory_mib"], points[min(points)]["memory_mib"]
            cells[title(f"{model}-chunk", settings["chunk"])] = f"{mebibytes(needed)} ({needed / alone:.2f})"
        rows.append({"processes": str(size), "tokens of each": f"{-(-settings['length'] // size):,}", **cells})
    return table_of(rows)
