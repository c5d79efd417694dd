"""Work shared out to processes: results in order, errors passed on, nothing done far ahead."""

import subprocess
import sys
from itertools import count, islice
from typing import List

import pytest

from fairseq_mega.lab.prepare.generators.ordered_blocks import AHEAD, in_order


def reciprocal(number: int) -> float:
    return 1 / number


@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_in_the_order_of_the_blocks(workers: int) -> None:
    assert list(in_order(reciprocal, range(1, 40), workers)) == [1 / number for number in range(1, 40)]
    assert list(in_order(reciprocal, [], workers)) == []


@pytest.mark.parametrize("workers", [1, 2])
def test_endless_blocks_are_taken_as_they_are_needed(workers: int) -> None:
    taken: List[int] = []
    blocks = (taken.append(number) or number for number in count(1))  # type: ignore[func-returns-value]
    results = in_order(reciprocal, blocks, workers)
    assert list(islice(results, 10)) == [1 / number for number in range(1, 11)]
    assert len(taken) <= 10 + AHEAD * workers
    results.close()  # type: ignore[attr-defined]


EARLY = """
from fairseq_mega.lab.prepare.generators.ordered_blocks import in_order
for number in range(200):
    blocks = in_order(abs, iter(range(100)), 2)
    for _ in range(number % 7 + 1):
        next(blocks)
    blocks.close()
"""


def test_a_caller_that_stops_early_never_waits_for_ever() -> None:
    """A caller that stops early ends; Python 3.11.2 hung in one of some hundred runs, hence a process of its own."""
    subprocess.run([sys.executable, "-c", EARLY], check=True, timeout=100)
