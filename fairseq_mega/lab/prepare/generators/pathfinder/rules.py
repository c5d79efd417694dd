"""The parameters of Pathfinder images, for 32 x 32 and for 128 x 128 pixels (Path-X)."""

from dataclasses import dataclass
from typing import Tuple


@dataclass(frozen=True)
class PathfinderRules:
    """Parameters of the images; lengths in pixels. A contour is a row of short lines with gaps, the paddles.

    Source: Linsley et al. (2018); values of the Long Range Arena (Tay et al., 2021), hard variant, for both sizes.
    """

    size: int  # of the square image
    paddle_length: float
    paddle_thickness: float
    margins: Tuple[int, ...]  # half the gap between two paddles; one of these is drawn per image
    distractors: int  # contours beside the two targets; fewer where there is no room
    seed_distance: int  # between the starts of the two targets
    marker_radius: float
    continuity: float  # the greater, the straighter are the contours
    contour_contrasts: Tuple[float, ...]  # one of these is drawn per contour
    paddle_contrasts: Tuple[float, ...]  # one of these is drawn per paddle, and multiplied with the contour's
    contour_length: int = 14  # paddles of a target
    distractor_length: int = 4  # paddles of a distractor
    padding: int = 1  # pixels along the border that stay free
    antialias: int = 2  # lines are drawn on a grid that is finer by this factor
    paddle_retries: int = 2  # draws of a paddle after one that touched something
    contour_retries: int = 4  # new starts of a distractor after one that failed


PATHFINDER32 = PathfinderRules(
    size=32,
    paddle_length=2,
    paddle_thickness=0.5,
    margins=(1,),
    distractors=5,
    seed_distance=7,
    marker_radius=1.5,
    continuity=1.0,
    contour_contrasts=(2.0,),
    paddle_contrasts=(0.75,),
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
    contour_contrasts=(0.9,),
    paddle_contrasts=(1.0,),
)
