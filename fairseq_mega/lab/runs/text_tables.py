"""Tables as text: for a terminal, and as Markdown."""

from typing import Callable, Dict, List, Mapping, NamedTuple, Sequence


class Table(NamedTuple):
    """Cells as text; the first column names the rows."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def table_of(rows: Sequence[Mapping[str, str]]) -> Table:
    """Return the table of rows that map its columns' titles to cells; all have the same columns, in the same order."""
    assert all([*row] == [*rows[0]] for row in rows), "rows of one table with different columns"
    return Table([*rows[0]] if rows else [], [[*row.values()] for row in rows])


def terminal(table: Table) -> str:
    """Return a table with columns as narrow as possible, names on the left and cells aligned to the right."""
    lines = [table.columns, *table.rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(table.columns))]
    texts = []
    for name, *cells in lines:
        padded = [cell.rjust(width) for cell, width in zip(cells, widths[1:])]
        texts.append("  ".join([name.ljust(widths[0]), *padded]).rstrip())
    return "\n".join(texts)


def markdown(table: Table) -> str:
    """Return a table in Markdown."""
    lines: List[Sequence[str]] = [table.columns, *table.rows]
    head, *body = ["| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |" for cells in lines]
    return "\n".join([head, "|" + "---|" * len(table.columns), *body])


FORMATS: Dict[str, Callable[[Table], str]] = {"terminal": terminal, "markdown": markdown}
