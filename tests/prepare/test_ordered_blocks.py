"""Work shared out to processes: results in order, errors passed on, nothing done far ahead."""

import os
import subprocess
import sys
import time
from itertools import count, islice
from pathlib import Path
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


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_comes_in_the_place_of_its_result(workers: int) -> None:
    results = in_order(reciprocal, [2, 1, 0, 3], workers)
    assert list(islice(results, 2)) == [0.5, 1.0]
    with pytest.raises(ZeroDivisionError):
        next(results)


PROGRAM = """
import os
from fairseq_mega.lab.prepare.generators.ordered_blocks import in_order

def who(block):
    return os.getpid()

if __name__ == "__main__":
    for worker in in_order(who, iter(int, 1), 2):
        print(worker, flush=True)
"""


def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, env=environment) as parent:
        assert parent.stdout is not None
        workers = {int(line) for line in islice(parent.stdout, 200)}
        parent.kill()
    while any(alive(worker) for worker in workers):
        time.sleep(0.2)


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


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
