"""Pathfinder: are the two marked ends on the same dashed contour? Images drawn by rule, 32 x 32 or 128 x 128 (Path-X).

    image, label = draw_pathfinder(index=0, seed=1, rules=PATHFINDER32)

The procedure is that of Linsley et al. (2018), the parameters are those of the Long Range Arena (Tay et al., 2021).
Their random numbers are not published, so these images are different ones. Two points are open in the published
description. Here occupied areas are sets of pixels, those within the margin of a paddle's edge. And a paddle may not
end where its successor would have no room (geometry.Stencils.clearance).
"""

from functools import partial
from typing import Iterator, List, Tuple

import numpy as np

from fairseq_mega.lab.prepare.generators.ordered_blocks import in_order
from fairseq_mega.lab.prepare.generators.pathfinder.layout import Contour, Layout, Paddle, lay_out
from fairseq_mega.lab.prepare.generators.pathfinder.painting import paint
from fairseq_mega.lab.prepare.generators.pathfinder.rules import PATHFINDER32, PATHFINDER128, PathfinderRules

__all__ = [
    "PATHFINDER32",
    "PATHFINDER128",
    "Contour",
    "Layout",
    "Paddle",
    "PathfinderRules",
    "draw_pathfinder",
    "generate_pathfinder",
    "lay_out",
    "paint",
]

BLOCK = 64  # images that a process draws in one block
Example = Tuple[np.ndarray, int]


def draw_pathfinder(index: int, seed: int, rules: PathfinderRules) -> Example:
    """Draw image number `index` of the endless series of `seed`.

    Returns:
        The image, (size, size) uint8, and the label: 1 where both markers lie on one contour, otherwise 0.

    Raises:
        ValueError: rules that leave no room for two contours.
    """
    layout = lay_out(index, seed, rules)
    return paint(layout, rules), layout.label


def generate_pathfinder(
    rules: PathfinderRules,
    first: int,
    end: int,
    seed: int,
    workers: int = 1,
) -> Iterator[Example]:
    """Yield images number `first` to `end` - 1 in order, the same ones for every number of workers.

    Raises:
        ValueError: as :func:`draw_pathfinder`.
    """
    starts = range(first, end, BLOCK)
    bounds = ((start, min(start + BLOCK, end)) for start in starts)
    for block in in_order(partial(_draw_block, seed, rules), bounds, workers):
        yield from block


def _draw_block(seed: int, rules: PathfinderRules, bounds: Tuple[int, int]) -> List[Example]:
    return [draw_pathfinder(index, seed, rules) for index in range(*bounds)]
