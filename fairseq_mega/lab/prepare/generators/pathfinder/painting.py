"""Painting a Pathfinder image: stamps of paddles and markers, merged by maximum, as 8-bit grey values."""

import math
from functools import lru_cache
from typing import Dict, Tuple

import numpy as np

from fairseq_mega.lab.prepare.generators.pathfinder.geometry import Point, distance_to_paddle
from fairseq_mega.lab.prepare.generators.pathfinder.layout import Layout
from fairseq_mega.lab.prepare.generators.pathfinder.rules import PathfinderRules

LOBES = 3  # of the Lanczos filter, in pixels of the image
LEVELS = 1 << 12  # stamps are rounded to these steps, so that every machine computes the same grey values


def lanczos_matrix(pixels: int, factor: int) -> np.ndarray:
    """Weights that reduce a row of `pixels` * `factor` values to `pixels`; (pixels, pixels * factor) float64."""
    centres = (np.arange(pixels) + 0.5) * factor - 0.5
    distance = (np.arange(pixels * factor) - centres[:, None]) / factor
    weights = np.where(np.abs(distance) < LOBES, np.sinc(distance) * np.sinc(distance / LOBES), 0.0)
    return weights / weights.sum(axis=1, keepdims=True)


class Stamps:
    """Paddles and markers in every position on the fine grid, made at the first use; all lengths in pixels.

    A stamp is (2 `reach` + 1, 2 `reach` + 1) float64, the pixel of the paddle's start or the marker's centre in its
    middle. Values: 0 for the background, 1 for a line that covers the pixel. The filter's negative values become 0.
    """

    def __init__(self, rules: PathfinderRules) -> None:
        self.rules = rules
        extent = max(rules.paddle_length + rules.paddle_thickness / 2, rules.marker_radius)
        self.reach = math.ceil(extent) + LOBES
        self.pixels = 2 * (self.reach + LOBES) + 1  # all within reach of the outermost pixels' filter
        self._reduce = lanczos_matrix(self.pixels, rules.antialias)
        self._stamps: Dict[Tuple[int, int, int], np.ndarray] = {}

    def paddle(self, start: Point, angle: int) -> np.ndarray:
        """The stamp of a paddle."""
        return self._stamp(start, self.rules.paddle_length, angle, self.rules.paddle_thickness / 2)

    def marker(self, centre: Point) -> np.ndarray:
        """The stamp of a marker, a paddle without length."""
        return self._stamp(centre, 0.0, -1, self.rules.marker_radius)

    def _stamp(self, point: Point, length: float, angle: int, radius: float) -> np.ndarray:
        factor = self.rules.antialias
        key = (point[0] % factor, point[1] % factor, angle)
        if key not in self._stamps:
            places = np.arange(self.pixels * factor) - (self.pixels // 2) * factor
            y, x = places[:, None] - key[0], places[None] - key[1]
            distance = distance_to_paddle(y, x, length * factor, angle)
            fine = np.clip(radius * factor + 0.5 - distance, 0, 1)  # how much of each point's square is covered
            reduced = (self._reduce @ fine @ self._reduce.T)[LOBES:-LOBES, LOBES:-LOBES]
            self._stamps[key] = np.rint(np.maximum(reduced, 0) * LEVELS) / LEVELS
        return self._stamps[key]


@lru_cache(maxsize=None)
def stamps(rules: PathfinderRules) -> Stamps:
    """The stamps of these rules, shared by all images that a process paints."""
    return Stamps(rules)


def paint(layout: Layout, rules: PathfinderRules) -> np.ndarray:
    """Paint an image; (size, size) uint8, the darkest value 0 and the brightest 255."""
    ours, factor = stamps(rules), rules.antialias
    frame = ours.reach  # around the image, so that stamps may reach over its edge
    canvas = np.zeros((rules.size + 2 * frame,) * 2)

    def merge(stamp: np.ndarray, point: Point, contrast: float) -> None:
        y, x = point[0] // factor, point[1] // factor
        part = canvas[y : y + 2 * frame + 1, x : x + 2 * frame + 1]
        np.maximum(part, stamp * contrast, out=part)

    for contour in (*layout.targets, *layout.distractors):
        for paddle in contour:
            merge(ours.paddle(paddle.start, paddle.angle), paddle.start, paddle.contrast)
    for marker in layout.markers:
        merge(ours.marker(marker), marker, 1.0)
    image = canvas[frame:-frame, frame:-frame]
    darkest, brightest = image.min(), image.max()
    return np.rint((image - darkest) * 255 / (brightest - darkest)).astype(np.uint8)
