"""Laying out a Pathfinder image: two long contours, the label, distractors around them; nothing is painted yet.

The procedure is that of Linsley et al. (2018): contours grow paddle by paddle, and a paddle that would touch
anything already there is drawn again.
"""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Callable, List, NamedTuple, Optional, Sequence, Tuple, TypeVar

import numpy as np

from fairseq_mega.lab.prepare.generators.pathfinder.geometry import Point, displacement, stencils
from fairseq_mega.lab.prepare.generators.pathfinder.rules import PathfinderRules

LEAST_FREE = 0.01  # of the image; with less no further distractor is begun
# The published rules need 50 (32 x 32) and 200 (128 x 128) on average.
ATTEMPTS = 100_000

Random = Callable[[], float]
Value = TypeVar("Value")


class Paddle(NamedTuple):
    """A short line; `start` and `end` are (row, column) on the fine grid."""

    start: Point
    end: Point
    angle: int  # degrees, 0 to the right, 90 downwards
    contrast: float


Contour = List[Paddle]


class Layout(NamedTuple):
    """The content of an image."""

    label: int  # 1: both markers lie on one contour
    margin: int
    targets: Tuple[Contour, Contour]
    distractors: List[Contour]
    markers: Tuple[Point, Point]


@dataclass
class _Growing:
    """A contour under way."""

    contrast: float
    paddles: Contour = field(default_factory=list)
    newest: int = 0  # pixels that the newest paddle occupies


def lay_out(index: int, seed: int, rules: PathfinderRules) -> Layout:
    """Lay out one image; it depends on nothing but the arguments.

    Raises:
        ValueError: rules that leave no room for two targets.
    """
    random: Random = np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, index)))).random
    label = int(random() * 2)
    margin = _choice(random, rules.margins)
    canvas = _Canvas(rules, margin, random)
    for _ in range(ATTEMPTS):
        targets = canvas.targets()
        if targets is not None:
            break
    else:
        raise ValueError(
            f"image {index}: {ATTEMPTS} attempts found no room for two contours of contour_length "
            f"{rules.contour_length} in an image of size {rules.size}; make the contours shorter or the image larger"
        )
    distractors = canvas.distractors(rules.distractors, rules.distractor_length)
    first = int(random() * 2)
    second = first if label else 1 - first
    markers = targets[first][0].start, targets[second][-1].end
    return Layout(label, margin, targets, distractors, markers)


class _Canvas:
    """The occupied pixels, and the contours that occupy more."""

    def __init__(self, rules: PathfinderRules, margin: int, random: Random) -> None:
        self.rules, self.random = rules, random
        self.stencils = stencils(rules, margin)
        self.blank = blank(rules, margin)
        self.occupied, self.shunned = self.blank  # occupied pixels, and pixels to which no paddle may point

    def targets(self) -> Optional[Tuple[Contour, Contour]]:
        """Two long contours that grow in turn on an empty canvas; None when they ran into something."""
        rules, random = self.rules, self.random
        self.occupied, self.shunned = self.blank
        edge = 2 * rules.seed_distance
        y, x = (edge + int(random() * (rules.size - 2 * edge)) for _ in range(2))
        start = self._point(y, x)
        first = self._begin(start)
        if first is None:
            return None
        second = self._begin(_sum(start, displacement(rules.seed_distance, self._angle(), rules.antialias)))
        if second is None:
            return None
        for _ in range(rules.contour_length - 1):
            if not (self._extend(first) and self._extend(second)):
                return None
        return first.paddles, second.paddles

    def distractors(self, number: int, length: int) -> List[Contour]:
        """Contours of `length` paddles from random free places; fewer than `number` where there is no room."""
        found: List[Contour] = []
        for _ in range(number):
            for _ in range(1 + self.rules.contour_retries):
                contour = self._distractor(length)
                if contour is not None:
                    found.append(contour)
                    break
        return found

    def _distractor(self, length: int) -> Optional[Contour]:
        start = self._free_place()
        before = self.occupied, self.shunned
        growing = self._begin(start) if start else None
        if growing and all(self._extend(growing) for _ in range(length - 1)):
            return growing.paddles
        self.occupied, self.shunned = before
        return None

    def _free_place(self) -> Optional[Point]:
        """A free pixel, any of them with the same probability; None where hardly any is left."""
        size, stencils = self.rules.size, self.stencils
        free = stencils.width**2 - bin(self.occupied).count("1")
        if free < LEAST_FREE * size**2:
            return None
        while True:
            y, x = int(self.random() * size), int(self.random() * size)
            if not self.occupied >> ((y + stencils.reach) * stencils.width + x + stencils.reach) & 1:
                return self._point(y, x)

    def _begin(self, start: Point) -> Optional[_Growing]:
        """The first paddle of a contour, in any direction that is free."""
        contour = _Growing(_choice(self.random, self.rules.contour_contrasts))
        corner = self.stencils.corner(start)
        for _ in range(1 + self.rules.paddle_retries):
            if self._place(contour, self.occupied >> corner, corner, start, self._angle()):
                return contour
        return None

    def _extend(self, contour: _Growing) -> bool:
        """Add a paddle after the last one; return False if all drawn paddles touch something."""
        stencils, last = self.stencils, contour.paddles[-1]
        start = _sum(last.start, stencils.next_start[last.angle])
        limit = self.rules.size * self.rules.antialias
        if not (0 <= start[0] < limit and 0 <= start[1] < limit):
            return False
        corner = stencils.corner(start)
        shunned = self.shunned >> corner & stencils.window_bits
        ends = [end for end in stencils.candidates(start, last.angle) if not shunned >> end.bit & 1]
        total = sum([end.weight for end in ends])
        if not total:
            return False
        # The newest paddle of the contour itself may be touched: the next one begins within its surroundings.
        occupied = (self.occupied & ~contour.newest) >> corner
        for _ in range(1 + self.rules.paddle_retries):
            left = int(self.random() * total)
            for end in ends:
                left -= end.weight
                if left < 0:
                    break
            if self._place(contour, occupied, corner, start, end.angle):
                return True
        return False

    def _place(self, contour: _Growing, occupied: int, corner: int, start: Point, angle: int) -> bool:
        """Add a paddle to a contour unless it needs an occupied pixel; the window `occupied` begins at `corner`.

        The published limit on the sum of the occupied and the needed area at any pixel is 1.8; both are 0 or 1 here.
        """
        near, far = self.stencils.surroundings(start, angle)
        if occupied & near:
            return False
        contrast = contour.contrast * _choice(self.random, self.rules.paddle_contrasts)
        contour.paddles.append(Paddle(start, _sum(start, self.stencils.end[angle]), angle, contrast))
        contour.newest = near << corner
        self.occupied |= contour.newest
        self.shunned |= far << corner
        return True

    def _point(self, y: int, x: int) -> Point:
        factor = self.rules.antialias
        return y * factor + factor // 2, x * factor + factor // 2

    def _angle(self) -> int:
        return int(self.random() * 360)


@lru_cache(maxsize=None)
def blank(rules: PathfinderRules, margin: int) -> Tuple[int, int]:
    """Return the occupied and the shunned pixels of an empty canvas."""
    ours = stencils(rules, margin)
    return ours.outside(rules.padding), ours.outside(rules.padding + ours.clearance)


def _sum(point: Point, other: Point) -> Point:
    return point[0] + other[0], point[1] + other[1]


def _choice(random: Random, values: Sequence[Value]) -> Value:
    """One of the values; draws no number where there is no choice."""
    return values[int(random() * len(values))] if len(values) > 1 else values[0]
