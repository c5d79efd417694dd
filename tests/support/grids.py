"""Crossed parameters thinned to a covering: the cases that stay hold every pair of values that all cases hold."""

import itertools
from collections import defaultdict
from typing import Any, Dict, FrozenSet, List, Sequence, Set, Tuple

import pytest

Choice = Tuple[str, int]  # a parameter and the identity of its value
Pair = FrozenSet[Choice]


def pairs(case: Dict[str, int]) -> Set[Pair]:
    """Return every pair of choices of `case`."""
    return {frozenset(both) for both in itertools.combinations(case.items(), 2)}


def covering(cases: Sequence[Dict[str, int]]) -> List[int]:
    """Return the numbers of some of `cases`, in order, that together hold every pair that `cases` hold.

    Greedy: the case with the most missing pairs comes next, the first of several.
    """
    held = [pairs(case) for case in cases]
    missing = set().union(*held)
    chosen: List[int] = []
    while missing:
        best = max(range(len(cases)), key=lambda number: (len(held[number] & missing), -number))
        chosen.append(best)
        missing -= held[best]
    return sorted(chosen)


def mostly_exhaustive(cases: Sequence[Any], kept: int) -> List[Any]:
    """Return cases for parametrize of which all but the first ``kept`` run with --exhaustive alone."""
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=[pytest.mark.exhaustive] * (number >= kept))
        for number, case in enumerate(cases)
    ]


def thin(items: Sequence[pytest.Item]) -> Tuple[List[pytest.Item], List[pytest.Item]]:
    """Return the tests to run and those to omit: of a function with three parameters or more, a covering stays.

    With two parameters every case is a pair of its own. Cases that need a GPU are covered apart.
    """
    functions: Dict[Tuple[str, bool], List[pytest.Item]] = defaultdict(list)
    for item in items:
        needs_gpu = item.get_closest_marker("gpu") is not None
        functions[item.nodeid.partition("[")[0], needs_gpu].append(item)
    kept: Set[int] = set()
    for tests in functions.values():
        specifications = [getattr(test, "callspec", None) for test in tests]
        cases = [{name: id(value) for name, value in spec.params.items()} for spec in specifications if spec]
        crossed = len(cases) == len(tests) and len(set().union(*cases)) > 2
        kept.update(id(tests[number]) for number in (covering(cases) if crossed else range(len(tests))))
    return [item for item in items if id(item) in kept], [item for item in items if id(item) not in kept]
