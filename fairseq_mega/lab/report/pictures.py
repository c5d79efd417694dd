"""Pictures of no table: the time of operators over the length, and images of Pathfinder."""

import argparse
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

from fairseq_mega.lab.runs.plotting import Line, Panel, draw_panels, load_pyplot, save
from fairseq_mega.lab.runs.report import Report
from fairseq_mega.lab.runs.results import read_result

BASELINES = ("DxNxL", "explicit", "torch")  # of the operators' benchmark: explicit, as published
COMPILED = ("blocks", "native", "scan", "fused")  # compiled paths of operators; a CPU's first choice first
LABELS = {1: "label 1: one contour", 0: "label 0: two contours"}  # of Pathfinder
COLUMNS, SEED = 5, 1  # of a page of Pathfinder


def by_kind(path: str) -> Tuple[bool, bool]:
    """Return the key that sorts compiled paths first and baselines last."""
    return path in BASELINES, path not in COMPILED


def plot_rows(rows: List[Dict[str, Any]], output: Path, source: Optional[str] = None) -> None:
    """Draw the measured rows ("title", "path", "shape", "seconds") to an image file, with ``source`` as in ``save``."""
    measured = [row for row in rows if "seconds" in row]
    panels = []
    for title in dict.fromkeys(row["title"] for row in measured):
        points: Dict[str, List[Tuple[float, float]]] = {}
        for row in measured:
            if row["title"] == title:
                batch, length = row["shape"]["batch"], row["shape"]["length"]
                points.setdefault(row["path"], []).append((length, 1e6 * row["seconds"] / (batch * length)))
        lines = [Line(sorted(points[path]), path) for path in sorted(points, key=by_kind)]
        axes = {"title": title, "xlabel": "length L (tokens)", "ylabel": "time per token (µs)", "yscale": "log"}
        panels.append(Panel(lines, axes, base=2))
    draw_panels(panels, output, source=source)


def add_kernels(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``kernels``."""
    add = parser.add_argument
    add("--json", type=Path, required=True, help="result file of python -m fairseq_mega.lab.benchmarks kernels")
    add("--output", type=Path, required=True, help="image to write, for instance kernels.png")


def print_kernels(options: argparse.Namespace) -> None:
    """Draw the plot."""
    plot_rows(read_result(options.json)["rows"], options.output)


def pathfinder_images(size: int) -> Dict[int, List[Any]]:
    """Return the first images of each label.

    Raises:
        ValueError: for another size than the task's.
    """
    from fairseq_mega.lab.prepare.generators.pathfinder import RULES, draw_pathfinder

    if size not in RULES:
        raise ValueError(f"--size {size}: give one of {', '.join(map(str, RULES))}")
    images: Dict[int, List[Any]] = {label: [] for label in LABELS}
    index = 0
    while min(map(len, images.values())) < COLUMNS:
        image, label = draw_pathfinder(index, SEED, RULES[size])
        images[label].append(image)
        index += 1
    return {label: found[:COLUMNS] for label, found in images.items()}


def draw_page(size: int, output: Path, source: Optional[str] = None) -> None:
    """Draw one row of images of Pathfinder per label to an image file, with ``source`` as in ``save``."""
    grid = {"figsize": (2.1 * COLUMNS + 0.2, 4.3), "squeeze": False, "layout": "constrained"}
    figure, panels = load_pyplot().subplots(len(LABELS), COLUMNS, **grid)
    for row, (label, images) in zip(panels, pathfinder_images(size).items()):
        row[0].set_ylabel(LABELS[label])
        for panel, image in zip(row, images):
            panel.imshow(image, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
            panel.set(xticks=[], yticks=[])
    save(figure, output, source)


def add_pathfinder(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``pathfinder-page``."""
    add = parser.add_argument
    about = "height and width in pixels (default: 32; Path-X: 128)"
    add("--size", type=int, default=32, help=about)
    add("--out", type=Path, required=True, help="image to write")


def print_pathfinder(options: argparse.Namespace) -> None:
    """Draw the page."""
    draw_page(options.size, options.out)
    print(f"page: {options.out}")


REPORTS = {
    "kernels": Report("Plot the time per token of the operators over the length.", add_kernels, print_kernels),
    "pathfinder-page": Report(
        "Draw a page of Pathfinder images: label 1 above, label 0 below.", add_pathfinder, print_pathfinder
    ),
}
