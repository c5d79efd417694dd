"""Draw a page of Pathfinder images: label 1 above, label 0 below."""

import argparse
from pathlib import Path
from typing import Any, Dict, List, Optional

from fairseq_mega.lab.prepare.classification.pathfinder import RULES
from fairseq_mega.lab.prepare.generators.pathfinder import draw_pathfinder
from fairseq_mega.lab.runs.plotting import load_pyplot, save
from fairseq_mega.lab.runs.report import Report

ROWS = (1, 0)  # labels
COLUMNS, SEED = 5, 1  # of the options


def sample(size: int, columns: int, seed: int) -> Dict[int, List[Any]]:
    """Return the first `columns` images of each label."""
    images: Dict[int, List[Any]] = {label: [] for label in ROWS}
    index = 0
    while min(map(len, images.values())) < columns:
        image, label = draw_pathfinder(index, seed, RULES[size])
        images[label].append(image)
        index += 1
    return {label: found[:columns] for label, found in images.items()}


def draw(images: Dict[int, List[Any]], output: Path, source: Optional[str] = None) -> None:
    """Draw one row of images per label to an image file, with ``source`` as in ``save``."""
    columns = len(images[ROWS[0]])
    grid = {"figsize": (2.1 * columns + 0.2, 4.3), "squeeze": False, "layout": "constrained"}
    figure, panels = load_pyplot().subplots(len(ROWS), columns, **grid)
    for label, row in zip(ROWS, panels):
        row[0].set_ylabel("label 1: one contour" if label else "label 0: two contours")
        for panel, image in zip(row, images[label]):
            panel.imshow(image, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
            panel.set(xticks=[], yticks=[])
    save(figure, output, source)


def draw_size(size: int, output: Path, source: Optional[str] = None) -> None:
    """Draw the page of the default options in a size."""
    draw(sample(size, COLUMNS, SEED), output, source)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``pathfinder-page``."""
    add = parser.add_argument
    add(
        "--size",
        type=int,
        choices=sorted(RULES),
        default=32,
        help="height and width in pixels (default: 32; Path-X: 128)",
    )
    add("--columns", type=int, default=COLUMNS, help="images of each label (default: %(default)s)")
    add("--seed", type=int, default=SEED, help="seed of the images (default: %(default)s)")
    add("--out", type=Path, required=True, help="image to write")


def run(options: argparse.Namespace) -> None:
    """Draw the page.

    Raises:
        ValueError: for an option out of range.
        OSError: if the image cannot be written.
    """
    for option, least in (("columns", 1), ("seed", 0)):
        value = getattr(options, option)
        if value < least:
            raise ValueError(f"--{option} is {value}; give {least} or more")
    draw(sample(options.size, options.columns, options.seed), options.out)
    print(f"page: {options.out}")


REPORT = Report(__doc__ or "", add_options, run)
