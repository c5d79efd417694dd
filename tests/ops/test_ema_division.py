"""Division of the CUDA scan among blocks (csrc/ema/ema_division.h), a rule that is checked without a GPU."""

from typing import NamedTuple, Tuple

import pytest

from fairseq_mega.ops.common import native

H200 = 132  # multiprocessors

pytestmark = pytest.mark.skipif(native.PROBLEM is not None, reason=f"no compiled kernels: {native.PROBLEM}")


class Division(NamedTuple):
    units: int
    tiles: int
    tiles_per_segment: int
    segments: int

    @property
    def blocks(self) -> int:
        return self.units * self.segments

    def cut(self, wanted: int) -> "Division":
        """The same scan in about so many segments."""
        tiles = -(-self.tiles // wanted)
        return self._replace(tiles_per_segment=tiles, segments=-(-self.tiles // tiles))


def divide(batch: int, length: int, width: int, bidirectional: bool, multiprocessors: int, alone: bool) -> Division:
    return Division(*native.operators.ema_scan_division(batch, length, width, bidirectional, multiprocessors, alone))


def time(division: Division, bidirectional: bool, multiprocessors: int, alone: bool) -> float:
    """Return the time in units of one tile where two blocks share a multiprocessor and the input is read once.

    Blocks that have a multiprocessor alone take two thirds of the time of two.
    """
    work = {False: (1.0, 1.5), True: (2.0, 2.5)}[bidirectional][0 if division.segments == 1 else 1]
    if alone:
        return -(-division.blocks // multiprocessors) * 2 / 3 * division.tiles_per_segment * work
    waves, rest = divmod(division.blocks, 2 * multiprocessors)
    last = 0.0 if rest == 0 else 2 / 3 if rest <= multiprocessors else 1.0
    return (waves + last) * division.tiles_per_segment * work


def shapes() -> Tuple[Tuple[int, int, int], ...]:
    batches, lengths, widths = (1, 2, 3, 5, 8, 13, 50), (1, 33, 128, 129, 1000, 4096, 20000), (1, 64, 512, 1000, 2048)
    return tuple((batch, length, width) for batch in batches for length in lengths for width in widths)


@pytest.mark.parametrize("multiprocessors", [4, 108, H200])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("alone", [False, True])
def test_no_other_division_takes_less_time(alone, bidirectional, multiprocessors):
    for batch, length, width in shapes():
        found = divide(batch, length, width, bidirectional, multiprocessors, alone)
        assert found.units == batch * -(-width // 32), found
        assert (found.segments - 1) * found.tiles_per_segment < found.tiles, found  # none is empty
        assert found.segments * found.tiles_per_segment >= found.tiles, found
        if bidirectional:
            others = [found.cut(1), found.cut(found.tiles)]
            assert found.segments == 1 or found.tiles_per_segment == 1, found
        else:
            most = 4 * (1 if alone else 2) * multiprocessors
            others = [found.cut(n) for n in range(1, found.tiles + 1) if n == 1 or n * found.units <= most]
            assert found.segments == 1 or found.blocks <= most, found
        best = min(time(other, bidirectional, multiprocessors, alone) for other in others)
        assert time(found, bidirectional, multiprocessors, alone) == pytest.approx(best), (batch, length, width, found)


@pytest.mark.parametrize("batch, width, segments", [(8, 1024, 1), (16, 512, 1), (1, 512, 64), (2, 1024, 64)])
def test_both_directions_in_one_segment_where_there_are_enough_units(batch, width, segments):
    assert divide(batch, 8192, width, True, H200, False).segments == segments
