"""The splits of every data set, and messages on standard error: single lines, and the progress of what is counted."""

import sys
from typing import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Optional, TypeVar

from tqdm import tqdm

SPLITS = ("train", "valid", "test")
HELD_OUT = 20  # of so many pairs or documents one is held out for each missing split
SECONDS = 15.0  # between reports

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


def follow(
    items: Iterable[Item],
    name: str,
    unit: str,
    total: Optional[float] = None,
    done: float = 0,
    size: Callable[[Item], float] = lambda item: 1,
) -> Iterator[Item]:
    """Pass items on, and print their count, rate and time left every SECONDS.

    Args:
        name: of the work.
        total: the count at the end, or None if it is not known.
        done: the count that an earlier run has reached.
        size: count of an item.
    """
    form = {"unit": f" {unit}", "unit_scale": True, "delay": SECONDS, "mininterval": SECONDS}
    with tqdm(desc=name, total=total, initial=done, **form) as bar:
        for item in items:
            yield item
            bar.update(size(item))
