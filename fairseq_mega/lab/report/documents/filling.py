"""All generated tables and marked numbers of a checkout: write them again, or compare them with the documents."""

from itertools import zip_longest
from pathlib import Path
from typing import List, NamedTuple, Optional

from fairseq_mega.lab.runs.text_tables import Table, markdown

from . import marked
from .markers import Call, make, replace
from .registry import TABLES


class Place(NamedTuple):
    """A generated table, with its document and its marker."""

    document: Path
    call: Call
    table: Table
    text: str  # the present text of the table


class Filled(NamedTuple):
    """A document, its present text and the text from its results, with its tables and its marked numbers."""

    document: Path
    old: str
    new: str
    places: List[Place]
    numbers: List[marked.Number]


def documents(root: Path) -> List[Path]:
    """The Markdown files of a checkout.

    Raises:
        FileNotFoundError: if the folder is not a checkout.
    """
    found = [*sorted(root.glob("*.md")), *sorted(root.glob("examples/**/*.md"))]
    if root / "README.md" not in found or not (root / "examples").is_dir():
        raise FileNotFoundError(f"{root} contains no README.md and examples: give --root, the folder of a checkout")
    return found


def build(document: Path, call: Call) -> Table:
    """Make a table of a document.

    Raises:
        ValueError: naming document and table, if it is unknown or a result is missing or damaged.
    """
    table = make("table", TABLES, document, call)
    if not table.rows:
        raise ValueError(f"{document}: table {str(call)!r} has no row: its results are missing")
    return table


def fill(document: Path) -> Filled:
    """Make the tables and the numbers of a document; raises as :func:`build` and :func:`.marked.fill`."""
    places: List[Place] = []

    def filled(call: Call, text: str) -> str:
        table = build(document, call)
        places.append(Place(document, call, table, text))
        return markdown(table)

    try:
        old = document.read_text(encoding="utf-8")
        new = replace(old, filled)
    except ValueError as error:
        named = str(error).startswith(str(document))
        raise ValueError(str(error) if named else f"{document}: {error}") from error
    new, numbers = marked.fill(document, new)
    return Filled(document, old, new, places, numbers)


def places_of(root: Path) -> List[Place]:
    """Return all generated tables of a checkout."""
    return [place for document in documents(root) for place in fill(document).places]


def write(root: Path) -> List[Path]:
    """Write all tables and numbers again, or none if one cannot be made; return the changed documents."""
    changed = [filled for filled in map(fill, documents(root)) if filled.new != filled.old]
    for filled in changed:
        filled.document.write_text(filled.new, encoding="utf-8")
    return [filled.document for filled in changed]


def differences(root: Path) -> List[str]:
    """Return a line for every row and every number that differs from its results."""
    return [line for document in documents(root) for line in differences_in(fill(document), root)]


def differences_in(filled: Filled, root: Path) -> List[str]:
    """Return a line for every row and every number of a document below `root` that differs from its results."""
    found = []
    name = filled.document.relative_to(root)
    for place in filled.places:
        wanted = markdown(place.table).splitlines()
        for row, (stands, should) in enumerate(zip_longest(place.text.splitlines(), wanted)):
            if stands != should:
                where = f"table '{place.call.name}', {row_title(row, should)}"
                found.append(f"{name}: {where}: {said(stands)}, not {said(should)}")
    for number in filled.numbers:
        if number.stands != number.should:
            found.append(f"{name}: {number.key} of {number.file}: {number.stands}, not {number.should}")
    return found


def row_title(row: int, line: Optional[str]) -> str:
    """Return the name of a row of a table in words: "head", or its number and first cell."""
    first = "" if line is None else line.split("|")[1].strip()
    return "head" if row == 0 else f"row {row - 1}" + (f" ({first})" if first else "")


def said(line: Optional[str]) -> str:
    """Return a line of a table, for a message."""
    return "nothing" if line is None else f"'{line}'"
