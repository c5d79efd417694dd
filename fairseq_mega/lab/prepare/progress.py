"""Messages on standard error: single lines, and the progress of anything that can be counted."""

import sys
import time
from typing import Callable, Iterable, Iterator, Optional, TypeVar

REPORT_SECONDS = 15.0
LEAST_SECONDS = 1.0  # a shorter time is too short for a rate

Item = TypeVar("Item")


def print_line(message: str) -> None:
    """Print a line to standard error."""
    print(message, file=sys.stderr, flush=True)


class Progress:
    """Printer of the count, the rate and the minutes left, at most every REPORT_SECONDS.

    Args:
        name: of the work.
        unit: of the count, in the plural.
        total: the count at the end, or None if it is not known.
        done: the count that an earlier run has reached.
    """

    def __init__(self, name: str, unit: str, total: Optional[float], done: float = 0) -> None:
        self.name, self.unit, self.total = name, unit, total
        self.begun_with = self.done = done
        self.begun = self.reported = time.monotonic()

    def reach(self, done: float) -> None:
        """Set the count."""
        self.done = done
        if time.monotonic() - self.reported >= REPORT_SECONDS:
            self.reported = time.monotonic()
            print_line(f"{self.name}: {self._describe(self.reported - self.begun)}")

    def follow(self, items: Iterable[Item], size: Callable[[Item], float] = lambda item: 1) -> Iterator[Item]:
        """Pass items on and count each with its size."""
        for item in items:
            yield item
            self.reach(self.done + size(item))

    @property
    def rate(self) -> float:
        """Count per second since this object was made."""
        return (self.done - self.begun_with) / max(time.monotonic() - self.begun, 1e-9)

    def describe_rate(self) -> str:
        """Return the rate with its unit."""
        return f"{self.rate:.3g} {self.unit}/s"

    def _describe(self, seconds: float) -> str:
        parts = [f"{self.done:.0f}{'' if self.total is None else f' of {self.total:.0f}'} {self.unit}"]
        if seconds >= LEAST_SECONDS and self.done > self.begun_with:
            parts.append(self.describe_rate())
            if self.total is not None:
                parts.append(f"{(self.total - self.done) / self.rate / 60:.1f} min left")
        return ", ".join(parts)
