"""Pathfinder: the images show what their labels say, found by other means than those that drew them."""

import hashlib
import itertools
import math
from typing import Dict, Iterator, List, Tuple

import numpy as np
import pytest

from fairseq_mega.lab.prepare.generators.pathfinder import (
    ANTIALIAS,
    CONTOUR_LENGTH,
    PADDING,
    PATHFINDER32,
    RULES,
    Contour,
    Layout,
    PathfinderRules,
    draw_pathfinder,
    generate_pathfinder,
    lay_out,
    paint,
)

SEED = 7
COUNTS = {32: 100, 128: 20}
SIZES = sorted(RULES)
Layouts = Dict[int, List[Layout]]


@pytest.fixture(scope="module")
def layouts() -> Layouts:
    return {size: [lay_out(index, SEED, RULES[size]) for index in range(COUNTS[size])] for size in SIZES}


@pytest.fixture(scope="module")
def images(layouts: Layouts) -> Dict[int, List[np.ndarray]]:
    return {size: [paint(found, RULES[size]) for found in layouts[size]] for size in SIZES}


def pixel(point: Tuple[int, int], rules: PathfinderRules) -> np.ndarray:
    """(row, column) in pixels of a point of the fine grid."""
    return (np.array(point) + 0.5) / ANTIALIAS - 0.5


def places(contour: Contour, rules: PathfinderRules) -> np.ndarray:
    """Points along the centre lines of the paddles; (paddles, 21, 2), in pixels."""
    starts, ends = (np.array([pixel(p, rules) for p in points]) for points in zip(*((p.start, p.end) for p in contour)))
    return starts[:, None] + (ends - starts)[:, None] * np.linspace(0, 1, 21)[:, None]


def nearest(one: np.ndarray, other: np.ndarray) -> float:
    """Least distance between two sets of points, (..., 2)."""
    difference = one.reshape(-1, 1, 2) - other.reshape(1, -1, 2)
    return float(np.sqrt((difference**2).sum(-1)).min())


@pytest.mark.parametrize("size", SIZES)
def test_layouts_keep_to_the_rules(size: int, layouts: Layouts) -> None:
    """Published numbers of paddles, starts in the middle, smooth contours with the gap of two margins."""
    rules, found = RULES[size], layouts[size]
    assert {(len(contour), len(one.targets)) for one in found for contour in one.targets} == {(14, 2)}
    assert {len(contour) for one in found for contour in one.distractors} == {4}
    assert max(len(one.distractors) for one in found) <= rules.distractors
    assert {one.margin for one in found} == set(rules.margins) and {one.label for one in found} == {0, 1}
    sharpest = 0
    for one in found:
        first, second = (pixel(contour[0].start, rules) for contour in one.targets)
        assert np.hypot(*(first - second)) == pytest.approx(rules.seed_distance, abs=0.5)
        assert 2 * rules.seed_distance <= round(first.min()) <= round(first.max()) < size - 2 * rules.seed_distance
        for contour in (*one.targets, *one.distractors):
            points = places(contour, rules)
            gaps = np.hypot(*(points[1:, 0] - points[:-1, -1]).T)
            assert np.abs(gaps - 2 * one.margin).max() < 0.75  # the fine grid's steps are half a pixel
            angles = np.array([paddle.angle for paddle in contour])
            sharpest = max(sharpest, np.abs((np.diff(angles) + 180) % 360 - 180).max())
            lengths = np.hypot(*(points[:, -1] - points[:, 0]).T)
            assert np.abs(lengths - rules.paddle_length).max() < 0.4
    assert 30 / rules.continuity < sharpest <= 90 / rules.continuity


@pytest.mark.parametrize("size", SIZES)
def test_different_contours_keep_apart_and_inside_the_image(size: int, layouts: Layouts) -> None:
    """Parts of different contours share no pixel within the margins: no distractor touches a target."""
    rules = RULES[size]
    for found in layouts[size]:
        contours = [places(contour, rules) for contour in (*found.targets, *found.distractors)]
        for one, other in itertools.combinations(contours, 2):
            # A pixel lies within 0.71 of the middle between two lines; it must be out of one line's surroundings.
            assert nearest(one, other) > 2 * (found.margin + rules.paddle_thickness / 2) - 2 * 0.71
        everything = np.concatenate([contour.reshape(-1, 2) for contour in contours])
        assert everything.min() >= PADDING and everything.max() <= size - 1 - PADDING


@pytest.mark.parametrize("size", SIZES)
def test_following_the_gaps_leads_from_marker_to_marker_if_and_only_if_the_label_is_1(
    size: int, layouts: Layouts
) -> None:
    """Paddles are followed as by a person: a successor starts two margins on, and contours are not known."""
    rules = RULES[size]
    for found in layouts[size]:
        paddles = [paddle for contour in (*found.distractors, *found.targets) for paddle in contour]
        starts = np.array([pixel(paddle.start, rules) for paddle in paddles])

        def successors(
            number: int, paddles: Contour = paddles, starts: np.ndarray = starts, margin: int = found.margin
        ) -> List[int]:
            turn = math.radians(paddles[number].angle)
            onward = np.array([math.sin(turn), math.cos(turn)]) * 2 * margin
            distance = np.hypot(*(starts - pixel(paddles[number].end, rules) - onward).T)
            return np.flatnonzero(distance < 0.75).tolist()

        (here,) = (number for number, paddle in enumerate(paddles) if paddle.start == found.markers[0])
        for _ in range(CONTOUR_LENGTH - 1):
            (here,) = successors(here)
        assert (paddles[here].end == found.markers[1]) == (found.label == 1)


def digest(images: List[np.ndarray]) -> str:
    return hashlib.sha256(np.stack(images).tobytes()).hexdigest()[:16]


@pytest.mark.parametrize(("size", "expected"), [(32, "6bc997a03c83cf37"), (128, "5b9bceef7427e264")])
def test_the_images_of_a_seed_never_change(size: int, expected: str, images: Dict[int, List[np.ndarray]]) -> None:
    assert digest(images[size][:20]) == expected


def listed(examples: Iterator[Tuple[np.ndarray, int]]) -> List[Tuple[bytes, int]]:
    return [(image.tobytes(), label) for image, label in examples]


def test_the_same_images_for_any_number_of_workers_and_any_beginning(
    layouts: Layouts, images: Dict[int, List[np.ndarray]]
) -> None:
    wanted = [(image.tobytes(), found.label) for image, found in zip(images[32], layouts[32])]
    assert listed(generate_pathfinder(PATHFINDER32, 0, COUNTS[32], SEED, workers=2)) == wanted
    assert listed(generate_pathfinder(PATHFINDER32, 37, 61, SEED)) == wanted[37:61]
    assert listed(generate_pathfinder(PATHFINDER32, 37, 37, SEED)) == []
    assert listed(iter([draw_pathfinder(37, SEED, PATHFINDER32)])) == wanted[37:38]
    assert len(set(wanted)) == len(wanted)
    assert not set(listed(generate_pathfinder(PATHFINDER32, 0, 10, SEED + 1))) & set(wanted)
