"""Pictures of moving averages and of attention."""

import math
from itertools import groupby, zip_longest
from pathlib import Path
from typing import Any, Dict, List, Sequence

import torch

from fairseq_mega.lab.runs.fingerprints import digest
from fairseq_mega.lab.runs.plotting import INK, load_pyplot, save

from .attention import Attended
from .averages import Average, reaches

COLUMNS = 3
TINY = 1e-12
FEWEST = 17  # distances of a picture
MARKED = (4, 16, 64, 256, 1024, 4096, 16384)  # distances with a number on the axis


def draw_kernels(averages: Sequence[Average], name: str, output: Path) -> None:
    """Draw a panel for each layer: a row of colours for each feature, from the shortest to the longest reach.

    Distances grow by powers of two from the middle, into the past on the left and into the future on the right. A row
    is scaled by its largest weight.
    """
    pyplot = load_pyplot()
    rows = rows_of(averages)
    columns = max(map(len, rows))
    size = (4.4 * columns, 2.9 * len(rows) + 1.0)
    figure, axes = pyplot.subplots(len(rows), columns, figsize=size, squeeze=False, layout="constrained")
    distances, image = _distances(max(map(_visible, averages))), None
    for row, line in zip(rows, axes):
        for panel, average in zip_longest(line, row):
            panel.set_visible(average is not None)
            image = image if average is None else _draw_kernel(panel, average, distances)
        line[0].set_ylabel("features, by reach")
    figure.suptitle(f"Moving averages of {name}: weight of an input by its distance")
    where = {"ax": axes, "location": "bottom", "shrink": 0.4, "aspect": 40, "pad": 0.03}
    bar = figure.colorbar(image, ticks=[-1, -0.5, 0, 0.5, 1], **where)
    bar.set_label("weight of an input, relative to the feature's largest")
    bar.outline.set_visible(False)
    save(figure, output, digest([average.half_lives.tolist() for average in averages]))


def rows_of(averages: Sequence[Average]) -> List[List[Average]]:
    """Return the layers in rows of at most COLUMNS; encoder and decoder have separate rows."""
    rows = []
    for _, side in groupby(averages, key=lambda average: average.layer.partition(" ")[0]):
        layers = list(side)
        rows += [layers[first : first + COLUMNS] for first in range(0, len(layers), COLUMNS)]
    return rows


def _draw_kernel(panel: Any, average: Average, distances: List[int]) -> Any:
    sides = [average.past[:, distances].flip(1)]
    if average.future.numel():
        sides.append(average.future[:, distances])
    picture = torch.cat(sides, 1)[reaches(average).argsort()]
    picture = picture / picture.abs().amax(1, keepdim=True).clamp(min=TINY)
    image = panel.imshow(picture.numpy(), aspect="auto", cmap="RdBu_r", vmin=-1, vmax=1, interpolation="nearest")
    now = len(distances) - 1
    marks = {distance: at for at, distance in enumerate(distances) if distance in MARKED}
    ticks: Dict[float, str] = {now: "0", **{now - at: str(distance) for distance, at in marks.items()}}
    if average.future.numel():
        panel.axvline(now + 0.5, color=INK, linewidth=0.8)
        ticks = {(now + 0.5 if at == now else at): name for at, name in ticks.items()}
        ticks.update({now + 1 + at: str(distance) for distance, at in marks.items()})
    panel.set_xticks(list(ticks), list(ticks.values()))
    panel.set_yticks([])
    panel.set_title(average.layer)
    panel.set_xlabel("steps back | steps ahead" if average.future.numel() else "steps back")
    return image


def _visible(average: Average) -> int:
    """Return the distance from which on every feature's weights are below a hundredth of its largest one."""
    weights = torch.stack([side.abs() for side in (average.past, average.future) if side.numel()]).amax(0)
    seen = weights > 0.01 * weights.amax(1, keepdim=True).clamp(min=TINY)
    return max(int(seen.any(0).nonzero().max()) + 1, FEWEST) if bool(seen.any()) else FEWEST


def _distances(length: int) -> List[int]:
    """Return distances below a length: all short distances, then eight for each doubling."""
    distances = {0, *(round(2 ** (step / 8)) for step in range(8 * (int(math.log2(length)) + 1)))}
    return sorted(distance for distance in distances if distance < length)


def draw_attention(found: Attended, output: Path) -> None:
    """Draw the attention weights of tokens; their characters need a font of matplotlib's ``font.family``."""
    weights, rows, columns, title = found
    pyplot = load_pyplot()
    font = {"parse_math": False}  # a dollar is a symbol
    size = (min(1.8 + 0.32 * len(columns), 16), min(1.6 + 0.3 * len(rows), 16))
    figure, panel = pyplot.subplots(figsize=size, layout="constrained")
    image = panel.imshow(weights.numpy(), cmap="Blues", vmin=0, vmax=max(float(weights.max()), 1e-6), aspect="auto")
    panel.set_xticks(range(len(columns)), columns, rotation=60, ha="left", rotation_mode="anchor", **font)
    panel.set_yticks(range(len(rows)), rows, **font)
    panel.xaxis.tick_top()
    panel.tick_params(length=0)
    panel.set_xticks([at - 0.5 for at in range(1, len(columns))], minor=True)
    panel.set_yticks([at - 0.5 for at in range(1, len(rows))], minor=True)
    panel.grid(which="minor", color="white", linewidth=0.8)
    panel.tick_params(which="minor", length=0)
    for spine in panel.spines.values():
        spine.set_visible(False)
    panel.set_xlabel(title)
    figure.colorbar(image, ax=panel, shrink=0.7, aspect=30, label="weight")
    save(figure, output)
