"""Pathfinder: are the two marked ends on the same dashed contour? Images drawn by rule, 32 x 32 or 128 x 128 (Path-X).

    image, label = draw_pathfinder(index=0, seed=1, rules=PATHFINDER32)

The procedure is that of Linsley et al. (2018), the parameters are those of the hard variant of the Long Range Arena
(Tay et al., 2021). A contour is a row of short lines with gaps, the paddles; it grows paddle by paddle, and a paddle
that would touch anything already there is drawn again. Two long contours are laid out, then distractors around them,
and all are painted at last.

The authors' random numbers are not published, so these images are different ones. Two points are open in the published
description. Here occupied areas are sets of pixels, those within the margin of a paddle's edge. And a paddle may not
end where its successor would have no room (_Stencils.clearance).

A point is a (row, column) of the fine grid, ANTIALIAS points per pixel. Sets of pixels are Python integers, pixel
(y, x) being bit y * `width` + x: whether a paddle touches anything is then one shift and one `and`, and placing it one
shift and one `or`. A border around the image, as wide as a stencil reaches, counts as occupied.
"""

import math
from bisect import bisect
from dataclasses import dataclass
from functools import cache, partial
from itertools import accumulate
from typing import Callable, Iterator, List, NamedTuple, Optional, Tuple

import numpy as np

from fairseq_mega.lab.prepare.generators.ordered_blocks import in_order

ANTIALIAS = 2  # lines are drawn on a grid that is finer by this factor
CONTOUR_LENGTH, DISTRACTOR_LENGTH = 14, 4  # paddles of a target and of a distractor
PADDLE_DRAWS = 3  # draws of a paddle, if it touches something
CONTOUR_DRAWS = 5  # starts of a distractor, if it fails
PADDING = 1  # pixels along the border that stay free
LEAST_FREE = 0.01  # of the image; with less no further distractor is begun
WEIGHT_ONE = 1 << 20  # weights are integers, so that every machine draws the same candidate
EXACT = 1e-6  # pixels; the edge of a stencil belongs to it, whichever way a machine rounds
LOBES = 3  # of the Lanczos filter, in pixels of the image
LEVELS = 1 << 12  # stamps are rounded to these steps, so that every machine computes the same grey values
BLOCK = 64  # images that a process draws in one block

Point = Tuple[int, int]
Example = Tuple[np.ndarray, int]


@dataclass(frozen=True)
class PathfinderRules:
    """Parameters of the images that depend on their size; lengths in pixels."""

    size: int  # of the square image
    paddle_length: float
    paddle_thickness: float
    margins: Tuple[int, ...]  # half the gap between two paddles; one of these is drawn per image
    distractors: int  # contours beside the two targets; fewer where there is no room
    seed_distance: int  # between the starts of the two targets
    marker_radius: float
    continuity: float  # the greater, the straighter are the contours
    contrast: float  # of the paddles; published as the product of one per contour and one per paddle


PATHFINDER32 = PathfinderRules(
    size=32,
    paddle_length=2,
    paddle_thickness=0.5,
    margins=(1,),
    distractors=5,
    seed_distance=7,
    marker_radius=1.5,
    continuity=1.0,
    contrast=2.0 * 0.75,
)
PATHFINDER128 = PathfinderRules(
    size=128,
    paddle_length=5,
    paddle_thickness=1.5,
    margins=(2, 3),
    distractors=8,
    seed_distance=20,
    marker_radius=3,
    continuity=1.8,
    contrast=0.9 * 1.0,
)
RULES = {32: PATHFINDER32, 128: PATHFINDER128}


def draw_pathfinder(index: int, seed: int, rules: PathfinderRules) -> Example:
    """Draw image number `index` of the endless series of `seed`.

    Returns:
        The image, (size, size) uint8, and the label: 1 where both markers lie on one contour, otherwise 0.
    """
    layout = lay_out(index, seed, rules)
    return paint(layout, rules), layout.label


def generate_pathfinder(rules: PathfinderRules, first: int, end: int, seed: int, workers: int = 1) -> Iterator[Example]:
    """Yield images number `first` to `end` - 1 in order, the same ones for every number of workers."""
    bounds = ((start, min(start + BLOCK, end)) for start in range(first, end, BLOCK))
    for block in in_order(partial(_draw_block, seed, rules), bounds, workers):
        yield from block


def _draw_block(seed: int, rules: PathfinderRules, bounds: Tuple[int, int]) -> List[Example]:
    return [draw_pathfinder(index, seed, rules) for index in range(*bounds)]


# --- Geometry


def displacement(distance: float, angle: int) -> Point:
    """`distance` pixels in direction `angle` (degrees, 0 to the right, 90 downwards), in steps of the fine grid."""
    turn = math.radians(angle)
    row, column = (round(distance * part * ANTIALIAS, 6) for part in (math.sin(turn), math.cos(turn)))
    return round(row), round(column)


def distance_to_paddle(y: np.ndarray, x: np.ndarray, length: float, angle: int) -> np.ndarray:
    """Distance of the places (y, x), relative to a paddle's start, from its centre line; float64, broadcast shape."""
    down, right = math.sin(math.radians(angle)), math.cos(math.radians(angle))
    along = np.clip(y * down + x * right, 0, length)
    return np.hypot(y - along * down, x - along * right)


def _phase(point: Point) -> Point:
    return point[0] % ANTIALIAS, point[1] % ANTIALIAS


def _sum(point: Point, other: Point) -> Point:
    return point[0] + other[0], point[1] + other[1]


class _Candidate(NamedTuple):
    """A pixel at which the next paddle may end."""

    bit: int  # in the window around the pivot
    weight: int
    angle: int


class _Stencils:
    """Stencils of all paddles of an image with one margin, made at the first use; all lengths in pixels.

    A stencil lies in a window of 2 `reach` + 1 rows around the pixel of a paddle's start. It depends on the direction
    of the paddle, and on the place of its start within the pixel, the phase.
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
        self.next_start = [displacement(step, angle) for angle in range(360)]
        self.end = [displacement(rules.paddle_length, angle) for angle in range(360)]
        # Occupied pixels of an empty canvas, and those to which no paddle may point.
        self.blank = self._outside(PADDING), self._outside(PADDING + self.clearance)
        self.surroundings = cache(self._surroundings)
        self.candidates = cache(self._candidates)

    def corner(self, point: Point) -> int:
        """First bit of the window around the pixel of a point inside the image."""
        return (point[0] // ANTIALIAS) * self.width + point[1] // ANTIALIAS

    def _outside(self, distance: int) -> int:
        """All pixels but those of the image that are at least `distance` from its edge."""
        first, last = distance + self.reach, self.rules.size - distance + self.reach
        row = ((1 << max(0, last - first)) - 1) << first
        inside = sum(row << y * self.width for y in range(first, last))
        return ((1 << self.width * self.width) - 1) ^ inside

    def _surroundings(self, phase: Point, angle: int) -> Tuple[int, int]:
        """Pixels that a paddle occupies, and those that no later one may point to, in the window around its start."""
        distance = distance_to_paddle(*self._offsets(phase), self.rules.paddle_length, angle)
        near, far = (
            sum(1 << i * self.width + j for i, j in np.argwhere(distance <= radius + EXACT).tolist())
            for radius in (self.surround, self.surround + self.clearance)
        )
        return near, far

    def _candidates(self, phase: Point, angle: int) -> List[_Candidate]:
        """Return the possible ends of a paddle after one of direction `angle`.

        The ends are the pixels of a circle, weighted with cos^2 of the turn; a greater continuity forbids sharp turns.
        """
        y, x = self._offsets(phase)
        found = []
        ring = np.abs(np.hypot(y, x) - (self.rules.paddle_length + self.margin)) <= 0.5 + EXACT
        for i, j in np.argwhere(ring).tolist():
            direction = round(math.degrees(math.atan2(y[i, 0], x[0, j]))) % 360
            turn = math.radians(abs((direction - angle + 180) % 360 - 180))
            weight = round(math.cos(min(self.rules.continuity * turn, math.pi / 2)) ** 2 * WEIGHT_ONE)
            if weight:
                found.append(_Candidate(i * self.width + j, weight, direction))
        return found

    def _offsets(self, phase: Point) -> Tuple[np.ndarray, np.ndarray]:
        """Pixel centres of the window relative to a point of this phase; (rows, 1) and (1, columns)."""
        places = np.arange(-self.reach, self.reach + 1)
        y, x = (places - ((part + 0.5) / ANTIALIAS - 0.5) for part in phase)
        return y[:, None], x[None]


_stencils = cache(_Stencils)  # shared by all images that a process draws


# --- Layout


class Paddle(NamedTuple):
    """A short line; `start` and `end` are (row, column) on the fine grid."""

    start: Point
    end: Point
    angle: int  # degrees, 0 to the right, 90 downwards


Contour = List[Paddle]


class Layout(NamedTuple):
    """The content of an image."""

    label: int  # 1: both markers lie on one contour
    margin: int
    targets: Tuple[Contour, Contour]
    distractors: List[Contour]
    markers: Tuple[Point, Point]


def lay_out(index: int, seed: int, rules: PathfinderRules) -> Layout:
    """Lay out one image; it depends on nothing but the arguments."""
    random = np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, index)))).random
    label = int(random() * 2)
    margin = rules.margins[int(random() * len(rules.margins)) if len(rules.margins) > 1 else 0]
    canvas = _Canvas(rules, margin, random)
    targets = None
    while targets is None:  # 50 (32 x 32) and 200 (128 x 128) times on average
        targets = canvas.targets()
    # Fewer than the rules' number where there is no room.
    distractors = [found for _ in range(rules.distractors) if (found := canvas.distractor())]
    first = int(random() * 2)
    second = first if label else 1 - first
    return Layout(label, margin, targets, distractors, (targets[first][0].start, targets[second][-1].end))


class _Canvas:
    """The occupied pixels, those to which no paddle may point, and the contours that occupy more."""

    def __init__(self, rules: PathfinderRules, margin: int, random: Callable[[], float]) -> None:
        self.rules, self.random, self.stencils = rules, random, _stencils(rules, margin)
        self.occupied, self.shunned = self.stencils.blank

    def targets(self) -> Optional[Tuple[Contour, Contour]]:
        """Two long contours that grow in turn on an empty canvas; None when they ran into something."""
        self.occupied, self.shunned = self.stencils.blank
        edge = 2 * self.rules.seed_distance
        start = _middle(*(edge + int(self.random() * (self.rules.size - 2 * edge)) for _ in range(2)))
        first: Contour = []
        second: Contour = []
        if not self._begin(first, start):
            return None
        if not self._begin(second, _sum(start, displacement(self.rules.seed_distance, self._angle()))):
            return None
        grown = all(self._extend(contour) for _ in range(CONTOUR_LENGTH - 1) for contour in (first, second))
        return (first, second) if grown else None

    def distractor(self) -> Optional[Contour]:
        """A short contour from a random free place; None where no drawn one has room."""
        for _ in range(CONTOUR_DRAWS):
            contour: Contour = []
            start, before = self._free_place(), (self.occupied, self.shunned)
            begun = start is not None and self._begin(contour, start)
            if begun and all(self._extend(contour) for _ in range(DISTRACTOR_LENGTH - 1)):
                return contour
            self.occupied, self.shunned = before
        return None

    def _free_place(self) -> Optional[Point]:
        """A free pixel, any of them with the same probability; None where hardly any is left."""
        size, stencils = self.rules.size, self.stencils
        if stencils.width**2 - self.occupied.bit_count() < LEAST_FREE * size**2:
            return None
        while True:
            y, x = int(self.random() * size), int(self.random() * size)
            if not self.occupied >> ((y + stencils.reach) * stencils.width + x + stencils.reach) & 1:
                return _middle(y, x)

    def _begin(self, contour: Contour, start: Point) -> bool:
        """Add the first paddle, in any direction that is free."""
        return self._place(contour, start, self.occupied, self._angle)

    def _extend(self, contour: Contour) -> bool:
        """Add a paddle after the last one; return False if all drawn paddles touch something."""
        stencils, last = self.stencils, contour[-1]
        start = _sum(last.start, stencils.next_start[last.angle])
        limit = self.rules.size * ANTIALIAS
        if not (0 <= start[0] < limit and 0 <= start[1] < limit):
            return False
        shunned = self.shunned >> stencils.corner(start) & stencils.window_bits
        ends = [end for end in stencils.candidates(_phase(start), last.angle) if not shunned >> end.bit & 1]
        if not ends:
            return False
        weights = list(accumulate([end.weight for end in ends]))
        # The newest paddle of the contour itself may be touched: the next one begins within its surroundings.
        newest = stencils.surroundings(_phase(last.start), last.angle)[0] << stencils.corner(last.start)
        return self._place(
            contour,
            start,
            self.occupied & ~newest,
            lambda: ends[bisect(weights, int(self.random() * weights[-1]))].angle,
        )

    def _place(self, contour: Contour, start: Point, occupied: int, draw: Callable[[], int]) -> bool:
        """Add a paddle in the first drawn direction in which it needs no occupied pixel, if there is one.

        The published limit on the sum of the occupied and the needed area at any pixel is 1.8; both are 0 or 1 here.
        """
        corner = self.stencils.corner(start)
        occupied >>= corner
        for angle in (draw() for _ in range(PADDLE_DRAWS)):
            near, far = self.stencils.surroundings(_phase(start), angle)
            if not occupied & near:
                contour.append(Paddle(start, _sum(start, self.stencils.end[angle]), angle))
                self.occupied |= near << corner
                self.shunned |= far << corner
                return True
        return False

    def _angle(self) -> int:
        return int(self.random() * 360)


def _middle(y: int, x: int) -> Point:
    """The point in the middle of a pixel."""
    return y * ANTIALIAS + ANTIALIAS // 2, x * ANTIALIAS + ANTIALIAS // 2


# --- Painting


def lanczos_matrix(pixels: int, factor: int) -> np.ndarray:
    """Weights that reduce a row of `pixels` * `factor` values to `pixels`; (pixels, pixels * factor) float64."""
    centres = (np.arange(pixels) + 0.5) * factor - 0.5
    distance = (np.arange(pixels * factor) - centres[:, None]) / factor
    weights = np.where(np.abs(distance) < LOBES, np.sinc(distance) * np.sinc(distance / LOBES), 0.0)
    return weights / weights.sum(axis=1, keepdims=True)


@cache
def _stamp(reach: int, radius: float, length: float, angle: int, phase: Point) -> np.ndarray:
    """Paint a paddle that begins at a point of this phase, or a marker, a paddle without length; lengths in pixels.

    Returns:
        (2 `reach` + 1, 2 `reach` + 1) float64, the pixel of the point in the middle: 0 for the background, 1 for a line
        that covers the pixel. The filter's negative values become 0.
    """
    pixels = 2 * (reach + LOBES) + 1  # all within reach of the outermost pixels' filter
    places = np.arange(pixels * ANTIALIAS) - (pixels // 2) * ANTIALIAS
    distance = distance_to_paddle(places[:, None] - phase[0], places[None] - phase[1], length * ANTIALIAS, angle)
    fine = np.clip(radius * ANTIALIAS + 0.5 - distance, 0, 1)  # how much of each point's square is covered
    reduce = lanczos_matrix(pixels, ANTIALIAS)
    reduced = (reduce @ fine @ reduce.T)[LOBES:-LOBES, LOBES:-LOBES]
    stamp: np.ndarray = np.rint(np.maximum(reduced, 0) * LEVELS) / LEVELS
    return stamp


def paint(layout: Layout, rules: PathfinderRules) -> np.ndarray:
    """Paint an image; (size, size) uint8, the darkest value 0 and the brightest 255.

    Stamps are merged by maximum.
    """
    half = rules.paddle_thickness / 2
    reach = math.ceil(max(rules.paddle_length + half, rules.marker_radius)) + LOBES
    canvas = np.zeros((rules.size + 2 * reach,) * 2)  # with a frame, so that stamps may reach over the edge
    paddles = [paddle for contour in (*layout.targets, *layout.distractors) for paddle in contour]
    stamps = [
        (start, _stamp(reach, half, rules.paddle_length, angle, _phase(start)) * rules.contrast)
        for start, _, angle in paddles
    ]
    stamps += [(marker, _stamp(reach, rules.marker_radius, 0.0, 0, _phase(marker))) for marker in layout.markers]
    for point, stamp in stamps:
        y, x = point[0] // ANTIALIAS, point[1] // ANTIALIAS
        part = canvas[y : y + 2 * reach + 1, x : x + 2 * reach + 1]
        np.maximum(part, stamp, out=part)
    image = canvas[reach:-reach, reach:-reach]
    darkest, brightest = image.min(), image.max()
    return np.rint((image - darkest) * 255 / (brightest - darkest)).astype(np.uint8)
