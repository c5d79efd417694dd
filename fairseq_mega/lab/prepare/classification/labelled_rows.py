"""Rows of a label and a text in the user's tables: tab-separated, or CSV whose first line names the columns."""

import csv
import re
from pathlib import Path
from typing import Callable, Iterator, List, NamedTuple, Optional, Tuple

from fairseq_mega.data.class_folders import listed
from fairseq_mega.data.file_kinds import HEAD
from fairseq_mega.data.json_lines import begins_array, begins_json, begins_object
from fairseq_mega.lab.prepare.progress import say
from fairseq_mega.lab.prepare.text_files import open_text, read_lines, read_table
from fairseq_mega.lab.runs.files import ends_no_line

FIRST_LINES = ("auto", "names", "example")
FIRST_LINE = (
    "the first line of each table has names of columns, or an example; auto: names if it has one for the labels "
    "(label, class, ...) and one for the texts (text, sentence, ...) (default: %(default)s)"
)
LABELS = frozenset(
    ("label", "labels", "class", "category", "target", "tag", "sentiment", "topic", "intent", "language")
)
TEXTS = frozenset(("text", "texts", "sentence", "document", "content", "body", "review", "comment", "message", "tweet"))
_QUOTED = re.compile(rb'"(?:[^"]|"")*"\Z')
_SEPARATORS = (b",", b";")  # of CSV, whose writers quote fields with them
_SPACED_QUOTES = re.compile(r"\s+\".*\"\s*", re.DOTALL)
_LONGEST = 1 << 30  # most characters of a field of CSV


class Header(NamedTuple):
    """Names of the columns of a table, from its first line.

    Attributes:
        delimiter: between columns.
        names: of the columns.
        label, text: numbers of the columns of labels and of texts.
        is_spaced: whether a blank follows each delimiter.
    """

    delimiter: str
    names: List[str]
    label: int
    text: int
    is_spaced: bool


def _delimiters(line: bytes) -> str:
    """Return the characters that may separate the columns of a table: TAB alone if the line contains a TAB."""
    return "\t" if b"\t" in line else ",;"


def _names(line: bytes, delimiter: str) -> List[str]:
    return [name.strip().strip("\"'").lower() for name in line.decode("utf-8", "replace").split(delimiter)]


def header_of(line: bytes) -> Optional[Header]:
    """Return the header in a line; None unless it names one column of labels and one column of texts."""
    for delimiter in _delimiters(line):
        names = _names(line, delimiter)
        labels = [place for place, name in enumerate(names) if name in LABELS]
        texts = [place for place, name in enumerate(names) if name in TEXTS]
        if len(labels) == 1 and len(texts) == 1:
            spaced = line.count(f"{delimiter} ".encode()) == len(names) - 1
            return Header(delimiter, names, labels[0], texts[0], spaced)
    return None


def check_columns(path: Path) -> None:
    """Raise ValueError for a table without names of columns whose labels seem to be behind the texts.

    They seem to be if column 2 has several different values, at most half as many as column 1, and shorter ones.
    """
    if header_of(_first_line(path)) is not None:
        return
    fields = [field for _, line in read_lines(path) if line.count(b"\t") == 1 for field in line.split(b"\t")]
    first, second = fields[::2], fields[1::2]
    values, others = len(set(first)), len(set(second))
    if 2 <= others <= values / 2 and sum(map(len, second)) < sum(map(len, first)):
        raise ValueError(
            f"{path}: column 1 has {values:,} different values and column 2 has {others:,}, shorter ones, so column 2 "
            f"seems to hold the labels: write text TAB label as the first line of each table; if column 1 holds them, "
            f"give --first-line example"
        )


def labelled_rows(path: Path, first_line: str = "auto") -> Iterator[Tuple[int, bytes, bytes]]:
    """Yield line number, label and text of each row.

    Args:
        first_line: one of FIRST_LINES.

    Raises:
        ValueError: names the line with another number of columns, or the file that is not a table.
        DownloadError: for a damaged packed file.
    """
    line = _first_line(path)
    if begins_object(line) or begins_array(line) or _begins_json(path):
        raise ValueError(
            f"{path}: it is JSON, and lines of label TAB text are needed, or CSV; convert it, for example JSON lines "
            f"with `(echo label,text; jq -r '[.label, .text] | @csv' {path}) >OUT.csv`"
        )
    if line.count(b"\r") > 1 and line.count(b"\t") != 1:
        raise ValueError(f"{path}: {ends_no_line(path)}")
    if re.fullmatch(rb'(?i)"?sep=.?"?\s*', line):
        raise ValueError(
            f"{path}: line 1 declares the separator for a spreadsheet and is not part of the table: remove it, for "
            f"example with `sed -i 1d {path}`"
        )
    header = None if first_line == "example" else header_of(line)
    if header is None and first_line == "auto":
        _check_names(path, line)
    if header is not None:
        taken = (header.names[header.label], header.names[header.text])
        others = [repr(name) for name in header.names if name not in taken]
        unread = f"; columns left out: {listed(others)}" if others else ""
        read = "label: {!r}, text: {!r}".format(*taken)
        say(f"{path}: the first line names the columns ({read}), and is left out{unread}")
        yield from _named(path, header)
        return
    if b"\t" not in line and (b"," in line or b";" in line):
        raise ValueError(
            f"{path}: line 1 has no TAB: lines of label TAB text are needed, or CSV whose first line names the columns "
            f"label and text"
        )
    columns = line.count(b"\t") + 1
    if columns > 2:
        raise ValueError(
            f"{path}: line 1 has {columns} columns, and label TAB text is needed: write a first line that "
            f"names the columns (label, text, and other names for those to leave out)"
        )
    unquoted = _unquoted(path, 0, int(first_line == "names"))
    for number, (label, text) in read_table(path, 2):
        label, text = unquoted(label), unquoted(text)
        if number > 1 or first_line != "names":
            _check_row(path, number, label, text, first_line)
            yield number, label, text


def _first_line(path: Path) -> bytes:
    return next((line for _, line in read_lines(path)), b"")


def _begins_json(path: Path) -> bool:
    with open_text(path, errors="replace") as file:
        return begins_json(file.read(HEAD).encode())


def _check_names(path: Path, line: bytes) -> None:
    """Raise ValueError for a first line that only names columns of labels or of texts, and several of a kind."""
    for delimiter in _delimiters(line):
        names = _names(line, delimiter)
        if len(names) > 2 and LABELS.intersection(names) and TEXTS.intersection(names):
            several = " and ".join(repr(name) for name in names if name in LABELS | TEXTS)
            raise ValueError(
                f"{path}: line 1 names the columns {several}, and one of labels and one of texts is needed: leave one "
                f"of each, or give the others other names"
            )


def _named(path: Path, header: Header) -> Iterator[Tuple[int, bytes, bytes]]:
    if header.delimiter == "\t":
        unquoted = _unquoted(path, header.label, 1)
        table = read_table(path, len(header.names))
        rows: Iterator[Tuple[int, List[bytes]]] = ((number, list(map(unquoted, fields))) for number, fields in table)
    else:
        rows = _read_csv(path, header)
    next(rows)
    for number, fields in rows:
        _check_row(path, number, fields[header.label], fields[header.text])
        yield number, fields[header.label], fields[header.text]


def _unquoted(path: Path, label: int, skipped: int) -> Callable[[bytes], bytes]:
    """Return the reader of a field of a tab-separated table; it removes quotes that are marks of the table.

    Quotes are marks of the table if each label is quoted, or if a quote within a text is doubled. They are also marks
    if exactly the fields with commas are quoted, or those with semicolons, as spreadsheets write them, and no field
    contradicts. A note counts quoted fields whose quotes stay.

    Args:
        label: the column of the labels.
        skipped: rows at the beginning that are not examples.

    Raises:
        ValueError: if only some labels are quoted, or quoted texts contradict.
    """
    bare = quoted = doubled = stray = 0  # number of the last such row
    in_all, with_mark, bare_mark = 0, dict.fromkeys(_SEPARATORS, 0), dict.fromkeys(_SEPARATORS, 0)  # quoted, and bare
    opened, broken = 0, ""
    for number, line in read_lines(path):
        fields = line.split(b"\t")
        if number <= skipped or label >= len(fields):
            continue
        if fields[label].strip():
            quoted, bare = (number, bare) if _QUOTED.match(fields[label]) else (quoted, number)
        for field in fields:
            if field.count(b'"') % 2:
                if not field.startswith(b'"') and field.endswith(b'"') and opened and not broken:
                    broken = f"a text in quotes seems to begin in line {opened} and to end in line {number}"
                opened = number if field.startswith(b'"') else 0
            in_quotes = _QUOTED.match(field) is not None
            in_all += in_quotes
            if b'"' in field and not in_quotes:
                stray = number
            elif b'""' in field[1:-1]:
                doubled = number
            else:
                count = with_mark if in_quotes else bare_mark
                count.update({mark: count[mark] + (mark in field) for mark in _SEPARATORS})
    if broken:
        say(f"note: {path}: {broken}, and each line is a row here: write CSV, or make blanks of line breaks in texts")
    if quoted and (bare or stray):
        raise ValueError(
            f"{path}: line {quoted} has its label in quotes, and line {bare or stray} is not written so: write all "
            f"fields in quotes, or none"
        )
    by_separators = any(in_all == with_mark[mark] > 1 and not bare_mark[mark] for mark in _SEPARATORS)
    if not quoted and (stray or not (doubled or by_separators)):
        if in_all and not stray:
            say(
                f"note: {path}: {in_all} fields are in double quotes, which are read as text: remove marks of the table"
            )
        return lambda field: field
    say(f"{path}: fields in double quotes are read without them")
    return lambda field: field[1:-1].replace(b'""', b'"') if _QUOTED.match(field) else field


def _check_row(path: Path, number: int, label: bytes, text: bytes, first_line: str = "auto") -> None:
    """Raise ValueError for a row within a table that names the columns again, for instance after joining files."""
    if first_line != "example" and number > 1 and header_of(label + b"\t" + text) is not None:
        raise ValueError(f"{path}: line {number} names the columns again: remove this line")


def _read_csv(path: Path, header: Header) -> Iterator[Tuple[int, List[bytes]]]:
    """Yield the number of the last line and the fields of each record, which may have several lines."""
    csv.field_size_limit(_LONGEST)
    with open_text(path, errors="surrogateescape", newline="") as file:
        reader = csv.reader(file, delimiter=header.delimiter, strict=True, skipinitialspace=header.is_spaced)
        last, several = 0, [(0, 0)]  # lines of a row with several lines, and the number of the last
        try:
            for fields in reader:
                if reader.line_num > last + 1:
                    several.append((reader.line_num - last, reader.line_num))
                last = reader.line_num
                if fields and len(fields) != len(header.names):
                    raise ValueError(
                        f"{path}: line {reader.line_num} has {len(fields)} columns, {len(header.names)} are needed; a "
                        f"text with {header.delimiter!r} must be in double quotes"
                    )
                if any(map(_SPACED_QUOTES.fullmatch, fields)):
                    raise ValueError(
                        f"{path}: line {reader.line_num} has a blank before a field in double quotes: remove it"
                    )
                if fields:
                    yield reader.line_num, [field.encode("utf-8", "surrogateescape") for field in fields]
        except csv.Error as error:
            raise ValueError(f"{path}: line {reader.line_num} is not CSV ({error}): correct it") from error
    if len(several) > 1:
        lines, end = max(several)
        say(f"{path}: {len(several) - 1:,} rows have several lines, the longest one {lines:,}, up to line {end:,}")
