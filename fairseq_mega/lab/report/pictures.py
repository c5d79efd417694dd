"""Pictures of no result file: curves of trainings' logs, and images of Pathfinder."""

import argparse
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

from fairseq_mega.lab.runs.plotting import Line, Panel, draw_panels, load_pyplot, save
from fairseq_mega.lab.runs.report import Report
from fairseq_mega.lab.runs.training_log import Log, read_log

Points = Dict[int, float]  # by update; of repeated updates after an interruption the last counts
CURVES = {  # titles of panels to names of updates and of a score in a log
    "training loss (bits)": ("num_updates", "loss"),
    "validation loss (bits)": ("valid_num_updates", "valid_loss"),
    "validation accuracy (%)": ("valid_num_updates", "valid_accuracy"),
    "validation BLEU": ("valid_num_updates", "valid_bleu"),
    "validation perplexity": ("valid_num_updates", "valid_ppl"),
}
LABELS = {1: "label 1: one contour", 0: "label 0: two contours"}  # of Pathfinder
COLUMNS, SEED = 5, 1  # of a page of Pathfinder


def curves_of(log: Log) -> Dict[str, Points]:
    """Return the points of each panel in the log of a training."""
    return {
        title: {int(found[updates]): found[score] for found in (*log.updates, *log.validations) if score in found}
        for title, (updates, score) in CURVES.items()
    }


def add_curves(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``curves``."""
    parser.add_argument("logs", type=Path, nargs="+", metavar="LOG", help="train.log of one or several runs")
    parser.add_argument("--output", type=Path, required=True, help="image to write")


def print_curves(options: argparse.Namespace) -> None:
    """Draw a curve for each log with a training, and print a line about each of them.

    Raises:
        OSError: if a log cannot be read.
        ValueError: if no log contains a training.
    """
    found: List[Tuple[str, Dict[str, Points]]] = []
    for log in options.logs:
        curves = curves_of(read_log(log))
        found += [(log.parent.name or log.stem, curves)] if any(curves.values()) else []
    if not found:
        raise ValueError("no log contains a training: they failed, or were made without --log-format json")
    panels = [
        Panel([Line(sorted(own[title].items()), name) for name, own in found], {"xlabel": "updates", "ylabel": title})
        for title in CURVES
        if any(own[title] for _, own in found)
    ]
    draw_panels(panels, options.output)
    for name, curves in found:
        print(f"{name}: {max(max(points, default=0) for points in curves.values()):,} updates")
    print(f"plot: {options.output}")


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
    "curves": Report("Plot training curves from fairseq's JSON logs.", add_curves, print_curves),
    "pathfinder-page": Report(
        "Draw a page of Pathfinder images: label 1 above, label 0 below.", add_pathfinder, print_pathfinder
    ),
}
