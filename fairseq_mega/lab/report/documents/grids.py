"""Tables of a result file whose scores have the names ROW: COLUMN."""

from pathlib import Path
from typing import Dict, Sequence

from fairseq_mega.lab.runs.results import read_result
from fairseq_mega.lab.runs.text_tables import Table, table_of


def grid(folder: Path, words: Sequence[str]) -> Table:
    """Return the scores of a file with a number of digits; the words that follow are the label of the first column."""
    name, digits, *first = words
    scores = read_result(folder / name)["scores"]
    keys = [key.split(": ", 1) for key in scores]
    columns = dict.fromkeys(column for _, column in keys)
    rows: Dict[str, Dict[str, str]] = {}
    for (row, column), score in zip(keys, scores.values()):
        rows.setdefault(row, {" ".join(first): row, **dict.fromkeys(columns, "")})[column] = f"{score:.{int(digits)}f}"
    return table_of(list(rows.values()))
