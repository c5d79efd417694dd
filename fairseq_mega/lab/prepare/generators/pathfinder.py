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
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

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


class _Candidate(NamedTuple):
    """A pixel at which the next paddle may end."""

    bit: int  # in the window around the pivot
    weight: int
    angle: int


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
            weight = math.cos(min(self.rules.continuity * turn, math.pi / 2)) ** 2
            if round(weight * WEIGHT_ONE):
                found.append(_Candidate(i * self.width + j, round(weight * WEIGHT_ONE), direction))
        return found

    def _offsets(self, phase: Point) -> Tuple[np.ndarray, np.ndarray]:
        """Pixel centres of the window relative to a point of this phase; (rows, 1) and (1, columns)."""
        places = np.arange(-self.reach, self.reach + 1)
        y, x = (places - ((part + 0.5) / ANTIALIAS - 0.5) for part in phase)
        return y[:, None], x[None]


@cache
def _stencils(rules: PathfinderRules, margin: int) -> _Stencils:
    """The stencils of these rules, shared by all images that a process draws."""
    return _Stencils(rules, margin)


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


@dataclass
class _Growing:
    """A contour under way."""

    paddles: Contour = field(default_factory=list)
    newest: int = 0  # pixels that the newest paddle occupies


def lay_out(index: int, seed: int, rules: PathfinderRules) -> Layout:
    """Lay out one image; it depends on nothing but the arguments."""
    random = np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, index)))).random
    label = int(random() * 2)
    margin = rules.margins[int(random() * len(rules.margins)) if len(rules.margins) > 1 else 0]
    canvas = _Canvas(rules, margin, random)
    targets = None
    while targets is None:  # 50 (32 x 32) and 200 (128 x 128) times on average
        targets = canvas.targets()
    distractors = canvas.distractors()
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
        y, x = (edge + int(self.random() * (self.rules.size - 2 * edge)) for _ in range(2))
        start = _middle(y, x)
        first = self._begin(start)
        if first is None:
            return None
        second = self._begin(_sum(start, displacement(self.rules.seed_distance, self._angle())))
        if second is None:
            return None
        for _ in range(CONTOUR_LENGTH - 1):
            if not (self._extend(first) and self._extend(second)):
                return None
        return first.paddles, second.paddles

    def distractors(self) -> List[Contour]:
        """Short contours from random free places; fewer than the rules' number where there is no room."""
        found: List[Contour] = []
        for _ in range(self.rules.distractors):
            for _ in range(CONTOUR_DRAWS):
                contour = self._distractor()
                if contour is not None:
                    found.append(contour)
                    break
        return found

    def _distractor(self) -> Optional[Contour]:
        start = self._free_place()
        before = self.occupied, self.shunned
        growing = self._begin(start) if start else None
        if growing and all(self._extend(growing) for _ in range(DISTRACTOR_LENGTH - 1)):
            return growing.paddles
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

    def _begin(self, start: Point) -> Optional[_Growing]:
        """The first paddle of a contour, in any direction that is free."""
        contour = _Growing()
        corner = self.stencils.corner(start)
        for _ in range(PADDLE_DRAWS):
            if self._place(contour, self.occupied >> corner, corner, start, self._angle()):
                return contour
        return None

    def _extend(self, contour: _Growing) -> bool:
        """Add a paddle after the last one; return False if all drawn paddles touch something."""
        stencils, last = self.stencils, contour.paddles[-1]
        start = _sum(last.start, stencils.next_start[last.angle])
        limit = self.rules.size * ANTIALIAS
        if not (0 <= start[0] < limit and 0 <= start[1] < limit):
            return False
        corner = stencils.corner(start)
        shunned = self.shunned >> corner & stencils.window_bits
        ends = [end for end in stencils.candidates(_phase(start), last.angle) if not shunned >> end.bit & 1]
        total = sum([end.weight for end in ends])
        if not total:
            return False
        # The newest paddle of the contour itself may be touched: the next one begins within its surroundings.
        occupied = (self.occupied & ~contour.newest) >> corner
        for _ in range(PADDLE_DRAWS):
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
        near, far = self.stencils.surroundings(_phase(start), angle)
        if occupied & near:
            return False
        contour.paddles.append(Paddle(start, _sum(start, self.stencils.end[angle]), angle))
        contour.newest = near << corner
        self.occupied |= contour.newest
        self.shunned |= far << corner
        return True

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


class _Stamps:
    """Paddles and markers in every position on the fine grid, made at the first use; all lengths in pixels.

    A stamp is (2 `reach` + 1, 2 `reach` + 1) float64, the pixel of the paddle's start or the marker's centre in its
    middle. Values: 0 for the background, 1 for a line that covers the pixel. The filter's negative values become 0.
    """

    def __init__(self, rules: PathfinderRules) -> None:
        extent = max(rules.paddle_length + rules.paddle_thickness / 2, rules.marker_radius)
        self.reach = math.ceil(extent) + LOBES
        self.pixels = 2 * (self.reach + LOBES) + 1  # all within reach of the outermost pixels' filter
        self._reduce = lanczos_matrix(self.pixels, ANTIALIAS)
        self._stamps: Dict[Tuple[float, int, Point], np.ndarray] = {}

    def stamp(self, point: Point, radius: float, length: float = 0.0, angle: int = 0) -> np.ndarray:
        """The stamp of a paddle that begins at a point, or of a marker, a paddle without length."""
        key = (radius, angle, _phase(point))
        if key not in self._stamps:
            places = np.arange(self.pixels * ANTIALIAS) - (self.pixels // 2) * ANTIALIAS
            y, x = places[:, None] - key[2][0], places[None] - key[2][1]
            distance = distance_to_paddle(y, x, length * ANTIALIAS, angle)
            fine = np.clip(radius * ANTIALIAS + 0.5 - distance, 0, 1)  # how much of each point's square is covered
            reduced = (self._reduce @ fine @ self._reduce.T)[LOBES:-LOBES, LOBES:-LOBES]
            self._stamps[key] = np.rint(np.maximum(reduced, 0) * LEVELS) / LEVELS
        return self._stamps[key]


@cache
def _stamps(rules: PathfinderRules) -> _Stamps:
    """The stamps of these rules, shared by all images that a process paints."""
    return _Stamps(rules)


def paint(layout: Layout, rules: PathfinderRules) -> np.ndarray:
    """Paint an image; (size, size) uint8, the darkest value 0 and the brightest 255.

    Stamps are merged by maximum.
    """
    stamps = _stamps(rules)
    frame = stamps.reach  # around the image, so that stamps may reach over its edge
    canvas = np.zeros((rules.size + 2 * frame,) * 2)

    def merge(stamp: np.ndarray, point: Point) -> None:
        y, x = point[0] // ANTIALIAS, point[1] // ANTIALIAS
        part = canvas[y : y + 2 * frame + 1, x : x + 2 * frame + 1]
        np.maximum(part, stamp, out=part)

    for contour in (*layout.targets, *layout.distractors):
        for start, _, angle in contour:
            stamp = stamps.stamp(start, rules.paddle_thickness / 2, rules.paddle_length, angle)
            merge(stamp * rules.contrast, start)
    for marker in layout.markers:
        merge(stamps.stamp(marker, rules.marker_radius), marker)
    image = canvas[frame:-frame, frame:-frame]
    darkest, brightest = image.min(), image.max()
    return np.rint((image - darkest) * 255 / (brightest - darkest)).astype(np.uint8)
