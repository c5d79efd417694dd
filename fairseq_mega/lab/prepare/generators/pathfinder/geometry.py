"""Geometry of the contours: points of the fine grid, and stencils of paddles as the bits of one integer.

A point is a (row, column) of the fine grid, `antialias` points per pixel. Sets of pixels are Python integers, pixel
(y, x) being bit y * `width` + x: whether a paddle touches anything is then one shift and one `and`, and placing it one
shift and one `or`. A border around the image, as wide as a stencil reaches, counts as occupied.
"""

import math
from functools import lru_cache
from typing import Dict, List, NamedTuple, Tuple

import numpy as np

from fairseq_mega.lab.prepare.generators.pathfinder.rules import PathfinderRules

WEIGHT_ONE = 1 << 20  # weights are integers, so that every machine draws the same candidate
EXACT = 1e-6  # pixels; the edge of a stencil belongs to it, whichever way a machine rounds
Point = Tuple[int, int]


class Candidate(NamedTuple):
    """A pixel at which the next paddle may end."""

    bit: int  # in the window around the pivot
    weight: int
    angle: int


def displacement(distance: float, angle: int, antialias: int) -> Point:
    """`distance` pixels in direction `angle` (degrees, 0 to the right, 90 downwards), in steps of the fine grid."""
    turn = math.radians(angle)
    row, column = (round(distance * part * antialias, 6) for part in (math.sin(turn), math.cos(turn)))
    return round(row), round(column)


def distance_to_paddle(y: np.ndarray, x: np.ndarray, length: float, angle: int) -> np.ndarray:
    """Distance of the places (y, x), relative to a paddle's start, from its centre line; float64, broadcast shape."""
    down, right = math.sin(math.radians(angle)), math.cos(math.radians(angle))
    along = np.clip(y * down + x * right, 0, length)
    return np.hypot(y - along * down, x - along * right)


class Stencils:
    """Stencils of all paddles of an image with one margin, made at the first use; all lengths in pixels.

    A stencil lies in a window of 2 `reach` + 1 rows around the pixel of a paddle's start.
    """

    def __init__(self, rules: PathfinderRules, margin: int) -> None:
        self.rules, self.margin = rules, margin
        # The surroundings that a paddle occupies: if those of two are apart, the gap of one contour is between them.
        self.surround = margin + rules.paddle_thickness / 2
        # Distance of a paddle's end, its margin included, from occupied pixels: the next paddle starts one margin
        # further on and needs its surroundings. With less, nearly all contours would run into the image's edge.
        self.clearance = 2 * margin
        self.reach = math.ceil(rules.paddle_length + self.surround + self.clearance) + 1
        self.width = rules.size + 2 * self.reach
        self.window_bits = (1 << (2 * self.reach + 1) * self.width) - 1
        step = rules.paddle_length + 2 * margin  # from one paddle's start to the next one's
        self.next_start = [displacement(step, angle, rules.antialias) for angle in range(360)]
        self.end = [displacement(rules.paddle_length, angle, rules.antialias) for angle in range(360)]
        self._candidates: Dict[Tuple[int, int, int], List[Candidate]] = {}
        self._surroundings: Dict[Tuple[int, int, int], Tuple[int, int]] = {}

    def corner(self, point: Point) -> int:
        """First bit of the window around the pixel of a point inside the image."""
        return (point[0] // self.rules.antialias) * self.width + point[1] // self.rules.antialias

    def outside(self, distance: int) -> int:
        """All pixels but those of the image that are at least `distance` from its edge."""
        first, last = distance + self.reach, self.rules.size - distance + self.reach
        row = ((1 << max(0, last - first)) - 1) << first
        inside = sum(row << y * self.width for y in range(first, last))
        return ((1 << self.width * self.width) - 1) ^ inside

    def surroundings(self, point: Point, angle: int) -> Tuple[int, int]:
        """Pixels that a paddle occupies, and those that no later one may point to, in the window around its start."""
        key = self._key(point, angle)
        if key not in self._surroundings:
            distance = distance_to_paddle(*self._offsets(key), self.rules.paddle_length, angle)
            near, far = (
                sum(1 << self._bit(i, j) for i, j in np.argwhere(distance <= radius + EXACT).tolist())
                for radius in (self.surround, self.surround + self.clearance)
            )
            self._surroundings[key] = near, far
        return self._surroundings[key]

    def candidates(self, point: Point, angle: int) -> List[Candidate]:
        """Return the possible ends of a paddle that starts at `point` after one of direction `angle`.

        The ends are the pixels of a circle, weighted with cos^2 of the turn; a greater continuity forbids sharp turns.
        """
        key = self._key(point, angle)
        if key not in self._candidates:
            y, x = self._offsets(key)
            found = []
            ring = np.abs(np.hypot(y, x) - (self.rules.paddle_length + self.margin)) <= 0.5 + EXACT
            for i, j in np.argwhere(ring).tolist():
                direction = round(math.degrees(math.atan2(y[i, 0], x[0, j]))) % 360
                turn = math.radians(abs((direction - angle + 180) % 360 - 180))
                weight = math.cos(min(self.rules.continuity * turn, math.pi / 2)) ** 2
                if round(weight * WEIGHT_ONE):
                    found.append(Candidate(self._bit(i, j), round(weight * WEIGHT_ONE), direction))
            self._candidates[key] = found
        return self._candidates[key]

    def _key(self, point: Point, angle: int) -> Tuple[int, int, int]:
        factor = self.rules.antialias
        return point[0] % factor, point[1] % factor, angle

    def _offsets(self, key: Tuple[int, int, int]) -> Tuple[np.ndarray, np.ndarray]:
        """Pixel centres of the window relative to a point with these phases; (rows, 1) and (1, columns)."""
        places = np.arange(-self.reach, self.reach + 1)
        y, x = (places - ((phase + 0.5) / self.rules.antialias - 0.5) for phase in key[:2])
        return y[:, None], x[None]

    def _bit(self, row: int, column: int) -> int:
        return row * self.width + column


@lru_cache(maxsize=None)
def stencils(rules: PathfinderRules, margin: int) -> Stencils:
    """The stencils of these rules, shared by all images that a process draws."""
    return Stencils(rules, margin)
