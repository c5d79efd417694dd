"""Measured numbers as text, and their arrangement in rows and columns."""

import statistics
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

from fairseq_mega.lab.runs.text_tables import Table, table_of

MIB = 2**20


def milliseconds(seconds: float) -> str:
    """Format seconds as milliseconds, with three digits or all before the point."""
    value = 1e3 * seconds
    return f"{value:,.{2 if value < 9.995 else 1 if value < 99.95 else 0}f} ms"


def ratio(value: float) -> str:
    """Format a ratio with three digits and an x, for instance "2.31x"."""
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}x"


def timed(point: Mapping[str, float], base: Optional[Mapping[str, float]] = None) -> str:
    """Format the time of a measurement, with its speed relative to another measurement."""
    speed = "" if base is None or base is point else f" ({ratio(base['seconds'] / point['seconds'])})"
    return milliseconds(point["seconds"]) + speed


def amount(value: float) -> str:
    """Format a number with three digits, or all before the point, and commas."""
    return f"{value:,.{0 if value >= 99.95 else 1 if value >= 9.995 else 2 if value >= 0.9995 else 3}f}"


def mebibytes(value: float) -> str:
    """Format an amount of memory in MiB."""
    return f"{value:,.{1 if value < 9.95 else 0}f} MiB"


def mean_and_deviation(values: Sequence[float], digits: int = 2) -> str:
    """Return the mean and, for two or more values, the standard deviation."""
    mean = f"{statistics.mean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ±{statistics.stdev(values):.{digits}f}"


def pivot(
    cells: Iterable[Tuple[Mapping[str, str], str, Union[str, float]]],
    columns: Iterable[str] = (),
    text: Callable[[float], str] = "{:.2f}".format,
    best: Optional[Callable[..., float]] = None,
    missing: str = "",
    last: int = 0,
) -> Table:
    """Return a table with a row for each head, and a column for each title.

    Args:
        cells: the head of its row (texts by titles of columns), the title of its own column, its text or number.
        columns: titles in this order; others follow in the order of their first cells.
        text: of a number.
        best: ``min`` or ``max``: of several numbers of a row the best is bold.
        missing: text of a missing cell.
        last: number of columns of the head behind the other columns.
    """
    rows: Dict[Tuple[Tuple[str, str], ...], Dict[str, Any]] = {}
    titles = dict.fromkeys(columns)
    for head, title, value in cells:
        rows.setdefault(tuple(head.items()), {})[title] = value
        titles.setdefault(title)
    found = []
    for items, values in rows.items():
        numbers = {title: value for title, value in values.items() if not isinstance(value, str)}
        texts = {**dict.fromkeys(titles, missing), **values, **{title: text(one) for title, one in numbers.items()}}
        if best is not None and len(numbers) > 1:
            chosen = best(numbers.values())
            texts.update({title: f"**{text(one)}**" for title, one in numbers.items() if one == chosen})
        first = len(items) - last
        found.append({**dict(items[:first]), **texts, **dict(items[first:])})
    return table_of(found)


def by_subject(scores: Dict[str, float], axis: str) -> Dict[str, Dict[int, Dict[str, float]]]:
    """Return scores named "SUBJECT AXIS=POINT KEY" as a dictionary: subject to point to key to value, in the file's
    order.
    """
    found: Dict[str, Dict[int, Dict[str, float]]] = {}
    for name, value in scores.items():
        subject, equals, rest = name.rpartition(f" {axis}=")
        point, space, key = rest.partition(" ")
        if equals and space:
            found.setdefault(subject, {}).setdefault(int(point), {})[key] = value
    return found


def points_of(found: Dict[str, Dict[int, Any]]) -> List[int]:
    """Return all points of all subjects, ascending."""
    return sorted({point for points in found.values() for point in points})
