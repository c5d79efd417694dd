"""Rows of a label and a text in the user's tables: CSV, or tab-separated columns by the ending .tsv."""

import csv
from pathlib import Path
from typing import Iterator, Tuple

from fairseq_mega.lab.prepare.text_files import decoded_lines

COLUMNS = ("label", "text")
FIRST_LINES = ("names", "example")
FIRST_LINE = (
    "the first line of each table names the columns, label and text among them, or is an example: a label and a text "
    "(default: %(default)s)"
)
_LONGEST = 1 << 30  # most characters of a field


def labelled_rows(path: Path, first_line: str = "names") -> Iterator[Tuple[int, str, str]]:
    """Yield the number of the last line, the label and the text of each row.

    A row of a tab-separated table is a line, and quotes are characters of it.

    Args:
        path: table in UTF-8, plain or gzip.
        first_line: one of FIRST_LINES.

    Raises:
        ValueError: names the line that is not UTF-8, has another number of columns, or is not CSV; or the file without
            the two columns.
        DownloadError: for a damaged packed file.
    """
    csv.field_size_limit(_LONGEST)
    lines, names = decoded_lines(path), COLUMNS if first_line == "example" else None
    if path.name.lower().removesuffix(".gz").endswith(".tsv"):
        rows = csv.DictReader(lines, names, delimiter="\t", quoting=csv.QUOTE_NONE, strict=True)
    else:
        rows = csv.DictReader(lines, names, strict=True)
    try:
        found = rows.fieldnames or ()
        if any(list(found).count(column) != 1 for column in COLUMNS):
            raise ValueError(
                f"{path}: line 1 must name one column label and one column text, found {', '.join(map(repr, found))}; "
                f"columns are separated by commas, in files .tsv by TAB; give --first-line example for rows of a label "
                f"and a text alone"
            )
        for row in rows:
            if None in row or None in row.values():
                raise ValueError(f"{path}: line {rows.line_num} has another number of columns than {len(found)}")
            yield rows.line_num, row["label"], row["text"]
    except csv.Error as error:
        raise ValueError(f"{path}: line {rows.line_num} is not a row of the table ({error})") from error
