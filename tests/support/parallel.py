"""How pytest-xdist (pytest -n 2) shares the tests out: what belongs together to one process, slow tests first.

The tests of a file stay together, as they share what takes long to make: a trained model, a built wheel. Those of ops
are shared out by function, with all its cases: what these have in common is made once (see numerics.once).
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
