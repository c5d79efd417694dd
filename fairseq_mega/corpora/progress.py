"""Progress lines for anything that can be counted."""

import time
from typing import Iterable, Iterator, TypeVar

from fairseq_mega.corpora.download import REPORT_SECONDS, say

Item = TypeVar("Item")


class Progress:
    """Prints things done, things per second and minutes left, at most every REPORT_SECONDS.

    Args:
        name: what is worked on.
        unit: what is counted, in the plural.
        total: how many there will be.
        done: how many an earlier run has done.
    """

    def __init__(self, name: str, unit: str, total: int, done: int = 0) -> None:
        self.name, self.unit, self.total = name, unit, total
        self.begun_with = self.done = done
        self.begun = self.reported = time.monotonic()

    def reach(self, done: int) -> None:
        """Note that ``done`` are done by now."""
        self.done = done
        now = time.monotonic()
        if now - self.reported >= REPORT_SECONDS:
            self.reported = now
            left = (self.total - done) / self.rate / 60 if self.rate else float("inf")
            say(f"{self.name}: {done} of {self.total} {self.unit}, {self.describe_rate()}, {left:.1f} min left")

    def advance(self, count: int = 1) -> None:
        """Note ``count`` more."""
        self.reach(self.done + count)

    def follow(self, items: Iterable[Item]) -> Iterator[Item]:
        """Pass items on and count them."""
        for item in items:
            yield item
            self.advance()

    @property
    def rate(self) -> float:
        """Things per second since this object was made."""
        return (self.done - self.begun_with) / max(time.monotonic() - self.begun, 1e-9)

    def describe_rate(self) -> str:
        """Return the rate with its unit."""
        return f"{self.rate:.0f} {self.unit}/s" if self.rate >= 100 else f"{self.rate:.3g} {self.unit}/s"
