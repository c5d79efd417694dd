"""The tables of the papers as data, with the measured rows under those that recipes train."""

from typing import Callable, List, Mapping, NamedTuple, Optional, Sequence

from fairseq_mega.lab.recipes.published import row_title
from fairseq_mega.lab.runs.text_tables import Table

Rows = List[List[str]]


class PaperTable(NamedTuple):
    """A table of a paper.

    Attributes:
        columns: titles, the first one of the rows' names.
        rows: names to the published cells; those of recipes stand in the recipes.
        trained: the rows that recipes train, with what tells their results from others'; None for a row that the
            recipes of another table train. All other rows are quoted.
        values_from: rows to the paper that the values are of, where it is another one.
    """

    columns: Sequence[str]
    rows: Mapping[str, Sequence[str]]
    trained: Mapping[str, Optional[str]]
    values_from: Mapping[str, str] = {}

    def beside(self, measured: Callable[[str], Rows]) -> Table:
        """The table with what ``measured`` returns for a trained row under each of them."""
        rows: Rows = []
        for name, cells in self.rows.items():
            rows.append([row_title(name, name in self.trained, self.values_from.get(name, "")), *cells])
            key = self.trained.get(name)
            rows += [] if key is None else measured(key)
        return Table(self.columns, rows)
