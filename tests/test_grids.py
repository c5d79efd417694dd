"""The default run of the tests: crossed parameters are thinned, and no pair of their values is lost."""

import itertools
from types import SimpleNamespace
from typing import Any, Dict, List, Optional, Sequence

import pytest

from tests.support import grids


def grid(*sizes: int) -> List[Dict[str, int]]:
    return [dict(zip("abcde", values)) for values in itertools.product(*map(range, sizes))]


def stand_ins(name: str, cases: Sequence[Dict[str, int]], gpu: bool = False) -> List[Any]:
    def marker(wanted: str) -> Optional[str]:
        return wanted if gpu and wanted == "gpu" else None

    return [
        SimpleNamespace(nodeid=f"{name}[{number}]", callspec=SimpleNamespace(params=case), get_closest_marker=marker)
        for number, case in enumerate(cases)
    ]


HOLES = [case for case in grid(3, 3, 3) if case["a"] != case["b"]]


@pytest.mark.parametrize("cases", [grid(2, 2, 2), grid(8, 3, 2, 3, 2), grid(1, 1, 1), HOLES], ids=len)
def test_every_pair_stays(cases):
    chosen = [cases[number] for number in grids.covering(cases)]
    assert set().union(*map(grids.pairs, chosen)) == set().union(*map(grids.pairs, cases))
    assert len(chosen) <= 48


def test_only_crossed_parameters_are_thinned():
    pair, single = stand_ins("pair", grid(4, 3)), stand_ins("single", grid(7))
    cube, on_gpu = stand_ins("cube", grid(2, 3, 4)), stand_ins("cube", grid(2, 3, 4), gpu=True)
    everything = [*pair, *cube, *single, *on_gpu]
    kept, omitted = grids.thin(everything)
    assert kept == [item for item in everything if item not in omitted]
    assert [item for item in kept if item.nodeid.startswith(("pair", "single"))] == [*pair, *single]
    for items in (cube, on_gpu):  # a case that is skipped here covers nothing
        rest = [item.callspec.params for item in items if item in kept]
        assert len(rest) < len(items)
        assert set().union(*map(grids.pairs, rest)) == set().union(*map(grids.pairs, grid(2, 3, 4)))
