"""The splits of every data set, and messages on standard error: single lines, and the progress of what is counted."""

import sys
import time
from typing import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Optional, TypeVar

SPLITS = ("train", "valid", "test")
HELD_OUT = 20  # of so many pairs or documents one is held out for each missing split
REPORT_SECONDS = 15.0

Item = TypeVar("Item")


def print_line(message: str) -> None:
    """Print a line to standard error."""
    print(message, file=sys.stderr, flush=True)


def print_overlap(splits: Mapping[str, Collection[Hashable]], things: str) -> None:
    """Print the number of examples of valid and test that are also in train, which raises the score."""
    train = set(splits["train"])
    for split in SPLITS[1:]:
        known = sum(example in train for example in splits[split])
        if known:
            print_line(f"note: {things} of {split} that are also in train, which raises the score: {known:,}")


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

    def follow(self, items: Iterable[Item], size: Callable[[Item], float] = lambda item: 1) -> Iterator[Item]:
        """Pass items on and count each with its size."""
        for item in items:
            yield item
            self.done += size(item)
            if time.monotonic() - self.reported >= REPORT_SECONDS:
                self.reported = time.monotonic()
                of = "" if self.total is None else f" of {self.total:.0f}"
                left = "" if self.total is None else f", {(self.total - self.done) / self.rate / 60:.1f} min left"
                print_line(f"{self.name}: {self.done:.0f}{of} {self.unit}, {self.describe_rate()}{left}")

    @property
    def rate(self) -> float:
        """Count per second since this object was made."""
        return max(self.done - self.begun_with, 1e-9) / max(time.monotonic() - self.begun, 1e-9)

    def describe_rate(self) -> str:
        """Return the rate with its unit."""
        return f"{self.rate:.3g} {self.unit}/s"
