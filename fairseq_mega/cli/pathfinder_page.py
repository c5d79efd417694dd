"""Draw a page of Pathfinder images that shows the task: label 1 above, label 0 below."""

import argparse
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional

from fairseq_mega.corpora.generators.pathfinder import PATHFINDER32, PATHFINDER128, draw_pathfinder
from fairseq_mega.reports.plotting import load_pyplot, save

RULES = {32: PATHFINDER32, 128: PATHFINDER128}
ROWS = (1, 0)  # labels


def sample(size: int, columns: int, seed: int) -> Dict[int, List[Any]]:
    """The first `columns` images of each label."""
    images: Dict[int, List[Any]] = {label: [] for label in ROWS}
    index = 0
    while min(map(len, images.values())) < columns:
        image, label = draw_pathfinder(index, seed, RULES[size])
        images[label].append(image)
        index += 1
    return {label: found[:columns] for label, found in images.items()}


def draw(images: Dict[int, List[Any]], output: Path) -> None:
    """Draw one row of images per label to an image file."""
    columns = len(images[ROWS[0]])
    figure, panels = load_pyplot().subplots(len(ROWS), columns, figsize=(2.2 * columns, 4.8), squeeze=False)
    for label, row in zip(ROWS, panels):
        for panel, image in zip(row, images[label]):
            panel.imshow(image, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
            panel.set_axis_off()
            panel.set_title("label 1: one contour" if label else "label 0: two contours", fontsize=9)
    save(figure, output)


def main(arguments: Optional[List[str]] = None) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(prog="pathfinder_page", description=__doc__)
    add = parser.add_argument
    add("--size", type=int, choices=sorted(RULES), default=32, help="pixels of a side (default: 32; Path-X: 128)")
    add("--columns", type=int, default=5, help="images of each label (default: 5)")
    add("--seed", type=int, default=1, help="of the series of images (default: 1)")
    add("--out", type=Path, required=True, help="image to write")
    options = parser.parse_args(arguments)
    if options.columns < 1:
        parser.error(f"--columns is {options.columns}; give 1 or more")
    if options.seed < 0:
        parser.error(f"--seed is {options.seed}; give 0 or more")
    try:
        draw(sample(options.size, options.columns, options.seed), options.out)
    except OSError as error:
        print(f"pathfinder_page: error: --out {options.out}: {error.strerror}", file=sys.stderr)
        return 1
    print(f"page: {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
