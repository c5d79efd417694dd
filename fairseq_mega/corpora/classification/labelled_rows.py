"""Rows of a label and a text in tables of one's own: tab-separated, or CSV whose first line names the columns."""

import csv
from pathlib import Path
from typing import Iterator, List, NamedTuple, Optional, Tuple

from fairseq_mega.corpora.progress import say
from fairseq_mega.corpora.tables import read_lines, read_table
from fairseq_mega.corpora.text_files import open_text
from fairseq_mega.data.class_folders import listed
from fairseq_mega.data.json_lines import begins_array, begins_object

FIRST_LINES = ("auto", "names", "example")
FIRST_LINE = (
    "what the first line of each table is: names of its columns, or an example; auto: names where it has one for the "
    "labels (label, class, ...) and one for the texts (text, sentence, ...) (default: %(default)s)"
)
LABELS = frozenset(
    ("label", "labels", "class", "category", "target", "tag", "sentiment", "topic", "intent", "language")
)
TEXTS = frozenset(("text", "texts", "sentence", "document", "content", "body", "review", "comment", "message", "tweet"))
_LONGEST = 1 << 30  # characters of a field of CSV


class Header(NamedTuple):
    """What the first line of a table says.

    Attributes:
        delimiter: between columns.
        columns: how many there are.
        label, text: which column holds which.
        others: names of the columns that are not read.
    """

    delimiter: str
    columns: int
    label: int
    text: int
    others: List[str]


def header_of(line: bytes) -> Optional[Header]:
    """The header that a line is; None where it does not name one column of labels and one of texts."""
    for delimiter in "\t,;":
        names = [name.strip().strip("\"'").lower() for name in line.decode("utf-8", "replace").split(delimiter)]
        labels = [place for place, name in enumerate(names) if name in LABELS]
        texts = [place for place, name in enumerate(names) if name in TEXTS]
        if len(labels) == 1 and len(texts) == 1:
            others = [name for place, name in enumerate(names) if place not in (labels[0], texts[0])]
            return Header(delimiter, len(names), labels[0], texts[0], others)
    return None


def labelled_rows(path: Path, first_line: str = "auto") -> Iterator[Tuple[int, bytes, bytes]]:
    """Yield line number, label and text of each row.

    Args:
        first_line: one of FIRST_LINES.

    Raises:
        ValueError: naming the line that has another number of columns, or a file that is no table.
        DownloadError: for a packed file that is damaged.
    """
    line = next((line for _, line in read_lines(path)), b"")
    if begins_object(line) or begins_array(line):
        raise ValueError(
            f"{path}: it is JSON, and lines of label TAB text are needed; convert it, for example JSON lines with "
            f"`jq -r '[.label, .text] | @tsv' {path} >OUT.tsv`"
        )
    header = None if first_line == "example" else header_of(line)
    if header is not None:
        unread = f"; columns left out: {listed(list(map(repr, header.others)))}" if header.others else ""
        say(f"{path}: the first line names the columns, and is left out{unread}")
        yield from _named(path, header)
        return
    if b"\t" not in line and (b"," in line or b";" in line):
        raise ValueError(
            f"{path}: line 1 has no TAB: lines of label TAB text are needed, or CSV whose first line names the columns "
            f"label and text"
        )
    for number, (label, text) in read_table(path, 2):
        if number > 1 or first_line != "names":
            _check_row(path, number, label, text, first_line)
            yield number, label, text


def _named(path: Path, header: Header) -> Iterator[Tuple[int, bytes, bytes]]:
    if header.delimiter == "\t":
        rows: Iterator[Tuple[int, List[bytes]]] = read_table(path, header.columns)
    else:
        rows = _read_csv(path, header)
    next(rows)
    for number, fields in rows:
        _check_row(path, number, fields[header.label], fields[header.text])
        yield number, fields[header.label], fields[header.text]


def _check_row(path: Path, number: int, label: bytes, text: bytes, first_line: str = "auto") -> None:
    """Raise ValueError for a row in the midst of a table that names the columns again, as where files were joined."""
    if first_line != "example" and number > 1 and header_of(label + b"\t" + text) is not None:
        raise ValueError(f"{path}: line {number} names the columns again: take it out of the midst of the table")


def _read_csv(path: Path, header: Header) -> Iterator[Tuple[int, List[bytes]]]:
    """Number of the last line, and fields of each record, which may have several lines."""
    csv.field_size_limit(_LONGEST)
    with open_text(path, errors="surrogateescape", newline="") as file:
        reader = csv.reader(file, delimiter=header.delimiter, strict=True)
        try:
            for fields in reader:
                if fields and len(fields) != header.columns:
                    raise ValueError(
                        f"{path}: line {reader.line_num} has {len(fields)} columns, {header.columns} are needed; a "
                        f"text with {header.delimiter!r} stands in double quotes"
                    )
                if fields:
                    yield reader.line_num, [field.encode("utf-8", "surrogateescape") for field in fields]
        except csv.Error as error:
            raise ValueError(f"{path}: line {reader.line_num} is no CSV ({error}): mend it") from error
