"""Measured numbers as text, and their arrangement in the rows and columns of a table."""

import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import yaml

from fairseq_mega.lab.runs.results import Result
from fairseq_mega.lab.runs.text_tables import Table, table_of

MIB = 2**20
Cell = Tuple[Mapping[str, str], str, Union[str, float]]  # head of its row, title of its column, text or number


def three_digits(value: float) -> str:
    """Format a number from 0.1 on with three digits, or all before the point, and commas."""
    return f"{value:,.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}"


def milliseconds(seconds: float) -> str:
    """Format seconds as milliseconds."""
    return f"{three_digits(1e3 * seconds)} ms"


def ratio(value: float) -> str:
    """Format a ratio, for instance "2.31x"."""
    return f"{three_digits(value)}x"


def mebibytes(value: float) -> str:
    """Format an amount of memory in MiB."""
    return f"{value:,.{1 if value < 9.95 else 0}f} MiB"


def mean_and_deviation(values: Sequence[float], digits: int = 2) -> str:
    """Return the mean and, for two or more values, the standard deviation."""
    mean = f"{statistics.mean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ±{statistics.stdev(values):.{digits}f}"


def pivot(
    cells: Iterable[Cell],
    columns: Iterable[str] = (),
    digits: int = 2,
    best: Optional[Callable[..., float]] = None,
    missing: str = "",
    last: int = 0,
) -> Table:
    """Return a table with a row for each head, and a column for each title.

    Args:
        cells: the head is texts by titles of columns; of the numbers of one cell mean and deviation are shown.
        columns: titles in this order; others follow in the order of their first cells.
        digits: of numbers behind the point.
        best: ``min`` or ``max``: of several means of a row the best is bold.
        missing: text of a missing cell.
        last: number of columns of the head behind the other columns.
    """
    rows: Dict[Tuple[Tuple[str, str], ...], Dict[str, List[Any]]] = {}
    titles = dict.fromkeys(columns)
    for head, title, value in cells:
        rows.setdefault(tuple(head.items()), {}).setdefault(title, []).append(value)
        titles.setdefault(title)
    found = []
    for items, values in rows.items():
        means = {title: statistics.fmean(own) for title, own in values.items() if not isinstance(own[-1], str)}
        texts = {title: mean_and_deviation(own, digits) if title in means else own[-1] for title, own in values.items()}
        if best is not None and len(means) > 1:
            chosen = best(means.values())
            texts.update({title: f"**{texts[title]}**" for title, mean in means.items() if mean == chosen})
        first = len(items) - last
        found.append({**dict(items[:first]), **dict.fromkeys(titles, missing), **texts, **dict(items[first:])})
    return table_of(found)


class Absent:
    """A missing field of a record; its text is "-"."""

    def __format__(self, form: str) -> str:
        return "-"


def filled_in(text: str, record: Mapping[str, Any]) -> str:
    """Return a template with the fields of a record, of which some may be missing."""
    return text.format_map(defaultdict(Absent, {name: value for name, value in record.items() if value is not None}))


class Form(NamedTuple):
    """A table as an entry of tables.yaml describes it."""

    rows: Mapping[str, str] = {}
    cells: Sequence[str] = ()
    last: Mapping[str, str] = {}
    missing: str = ""
    axis: str = ""
    titles: Mapping[str, str] = {}
    base: Optional[str] = None
    only: str = ""

    def table(self, records: Iterable[Mapping[str, Any]], columns: Iterable[str] = ()) -> Table:
        """Return the table of some records, with the columns in this order."""
        cells: List[Cell] = []
        for record in records:
            head = {title: filled_in(text, record) for title, text in {**self.rows, **self.last}.items()}
            title, text = [filled_in(text, record) for text in self.cells] or ("", "")
            cells.append((head, title, text))
        if not self.cells:
            return table_of([head for head, _, _ in cells])
        return pivot(cells, columns, missing=self.missing, last=len(self.last))

    def title(self, name: str, chunk: Any = "") -> str:
        """Return a model in words; an unknown model keeps its name, for instance "mega, chunk 64"."""
        first, comma, rest = name.partition(", ")
        return self.titles.get(first, first).format(chunk=chunk) + comma + rest


FORMS = {
    name: Form(**about)
    for name, about in yaml.safe_load(Path(__file__).with_name("tables.yaml").read_text(encoding="utf-8")).items()
}


def record_of(result: Result) -> Dict[str, Any]:
    """Return the settings and scores of a result as fields of one record, with its seed, label and examples."""
    return {**result["settings"], **result["scores"], **{key: result[key] for key in ("seed", "label", "examples")}}


def by_subject(scores: Dict[str, float], axis: str) -> Dict[str, Dict[int, Dict[str, float]]]:
    """Return scores named "SUBJECT AXIS=POINT KEY" as a dictionary: subject to point to key to value, in the file's
    order.
    """
    found: Dict[str, Dict[int, Dict[str, float]]] = {}
    for name, value in scores.items():
        subject, equals, rest = name.rpartition(f"{axis}=")
        point, space, key = rest.partition(" ")
        if equals and space:
            found.setdefault(subject.rstrip(), {}).setdefault(int(point), {})[key] = value
    return found
