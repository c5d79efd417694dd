"""Table of the bytes that each process of a training held and sent, from the file of its measurement."""

from pathlib import Path
from typing import Sequence

from fairseq_mega.lab.runs.results import read_result
from fairseq_mega.lab.runs.text_tables import Table, table_of

from .numbers import MIB, by_subject, points_of

MODELS = {"mega": "MEGA", "megalodon": "MEGALODON"}
NUMBERS = {
    "held": "held",
    "on paper": "held_on_paper",
    "sent": "sent",
    "sent on paper": "sent_on_paper",
    "written by gloo": "written",
}


def measured(folder: Path, words: Sequence[str]) -> Table:
    """Table with a row for each number of processes and training: MiB held and sent by a process, and the estimates."""
    (name,) = words
    found = by_subject(read_result(folder / name)["scores"], "N")
    rows = []
    for model, points in found.items():
        for size in points_of(found):
            cases = dict.fromkeys(key.rpartition(" ")[0] for key in points[size])
            for case in cases:
                cells = {title: f"{points[size][f'{case} {key}'] / MIB:.1f} MiB" for title, key in NUMBERS.items()}
                rows.append({"model": MODELS[model], "processes": str(size), "training": case, **cells})
    return table_of(rows)
