"""Tables as text."""

from typing import List, Sequence


def aligned(title: str, cells: Sequence[str], first: int = 30, width: int = 14) -> str:
    """A line whose title takes ``first`` characters, and each cell ``width``, to the right."""
    return title.ljust(first) + "".join(cell.rjust(width) for cell in cells)


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines: List[Sequence[str]] = [columns, *rows]
    head, *body = ["| " + " | ".join(cells) + " |" for cells in lines]
    return "\n".join([head, "|" + "---|" * len(columns), *body])
