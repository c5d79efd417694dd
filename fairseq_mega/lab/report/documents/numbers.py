"""Measured numbers as text."""

from typing import Any, Callable, Dict, List, Optional, Sequence

MIB = 2**20


def milliseconds(seconds: float) -> str:
    """Format seconds as milliseconds, with three digits or all before the point."""
    value = 1e3 * seconds
    return f"{value:,.{2 if value < 9.995 else 1 if value < 99.95 else 0}f} ms"


def ratio(value: float) -> str:
    """Format a ratio with three digits and an x, for instance "2.31x"."""
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}x"


def amount(value: float) -> str:
    """Format a number with three digits, or all before the point, and commas."""
    return f"{value:,.{0 if value >= 99.95 else 1 if value >= 9.995 else 2 if value >= 0.9995 else 3}f}"


def mebibytes(value: float) -> str:
    """Format an amount of memory in MiB."""
    return f"{value:,.{1 if value < 9.95 else 0}f} MiB"


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
    """Return all points of all subjects, rising."""
    return sorted({point for points in found.values() for point in points})


def bold_best(texts: Sequence[str], values: Sequence[Optional[float]], best: Callable[..., float]) -> List[str]:
    """Return the texts; if there are several, the text of the best value (``min`` or ``max``) is bold."""
    known = [value for value in values if value is not None]
    chosen = best(known) if len(known) > 1 else None
    return [f"**{text}**" if value is not None and value == chosen else text for text, value in zip(texts, values)]
