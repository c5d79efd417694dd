"""Plot of the training losses of two ways of training, a panel per seed."""

import statistics
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple

from fairseq_mega.lab.runs.plotting import Line, Panel, draw_panels, height_limits

UPDATES = 10  # of a mean


def means(losses: Sequence[float]) -> List[Tuple[int, float]]:
    """Return updates, and for each the mean loss of the last UPDATES."""
    return [(update, statistics.fmean(losses[update - UPDATES : update])) for update in range(UPDATES, len(losses) + 1)]


def plot(losses: Dict[str, Sequence[float]], output: Path, source: Optional[str] = None) -> None:
    """Draw the losses in bits of trainings named WAY, SEED to an image file, with ``source`` as in ``save``."""
    lines: Dict[str, List[Line]] = {}
    for name, values in losses.items():
        way, seed = name.rsplit(", ", 1)
        lines.setdefault(seed, []).append(Line(means(values), way))
    limits = height_limits([loss for own in lines.values() for line in own for _, loss in line.points])
    axes = {"xlabel": "updates", "ylabel": f"training loss (bits, mean of {UPDATES} updates)"}
    panels = [Panel(own, {"title": seed, **axes, **limits}) for seed, own in lines.items()]
    draw_panels(panels, output, source=source)
