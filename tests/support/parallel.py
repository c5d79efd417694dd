"""Division of the tests among processes by pytest-xdist (pytest -n 2): related tests to one, slow tests first.

The tests of a file stay together, because they share results that are slow to make: a trained model, a built wheel.
Tests of ops are divided by function, with all cases of one: their common results are made once (see numerics.once).
"""

from collections import Counter
from typing import List, Optional, Tuple

import pytest

BY_FUNCTION = ("tests/ops/", "tests/modules/")


def unit(nodeid: str) -> str:
    """Name of what one process runs as a whole."""
    file, _, test = nodeid.partition("::")
    return f"{file}::{test.partition('[')[0]}" if file.startswith(BY_FUNCTION) else file


def slow_first(items: List[pytest.Item]) -> None:
    """Sort the tests by unit: those with the most slow tests first, then those with the most tests."""
    size = Counter(unit(item.nodeid) for item in items)
    slow = Counter(unit(item.nodeid) for item in items if item.get_closest_marker("slow"))
    place = {name: number for number, name in enumerate(size)}

    def rank(item: pytest.Item) -> Tuple[int, int, int]:
        name = unit(item.nodeid)
        return -slow[name], -size[name], place[name]

    items.sort(key=rank)


def scheduler(config: pytest.Config, log: object) -> Optional[object]:
    """The scheduler of xdist that hands out units in the order of the tests, unless --dist asks for another one."""
    if config.getoption("dist") != "load":  # what -n alone means
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Units(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return unit(nodeid)

    config.option.loadscopereorder = False
    return Units(config, log)
