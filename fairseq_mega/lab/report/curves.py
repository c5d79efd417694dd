"""Training curves from fairseq's logs (--log-format json): losses, and the score on the validation set."""

import argparse
from pathlib import Path
from typing import Dict, Iterable, List, Sequence, Tuple

from fairseq_mega.lab.runs.log_progress import parse_statistics
from fairseq_mega.lab.runs.plotting import Line, Panel, draw_panels
from fairseq_mega.lab.runs.report import Report

Points = Dict[int, float]  # by update; of repeated updates after an interruption the last counts
PANELS = ("training loss (bits)", "validation loss (bits)", "validation score")
SCORES = ("valid_accuracy", "valid_bleu", "valid_ppl")


def read_curves(lines: Iterable[str]) -> Dict[str, Points]:
    """Return the points of each panel in a log; incomplete lines are left out."""
    curves: Dict[str, Points] = {panel: {} for panel in PANELS}
    for line in lines:
        found = parse_statistics(line)  # its names show its kind, which a --log-file of fairseq lacks
        add(curves[PANELS[0]], found, "num_updates", "loss")
        add(curves[PANELS[1]], found, "valid_num_updates", "valid_loss")
        score = next((key for key in SCORES if key in found), "")
        add(curves[PANELS[2]], found, "valid_num_updates", score)
    return curves


def add(points: Points, statistics: Dict[str, str], updates: str, key: str) -> None:
    """Add the point of a line, if there is one."""
    if updates in statistics and key in statistics:
        points[int(float(statistics[updates]))] = float(statistics[key])


def draw(logs: Sequence[Path], output: Path) -> Tuple[List[str], List[str]]:
    """Draw a curve for each log; return a line about each log, including logs without a training.

    Raises:
        OSError: if a log cannot be read.
        ValueError: if no log contains a training.
    """
    found: List[Tuple[str, Dict[str, Points]]] = []
    empty: List[str] = []
    for log in logs:
        with log.open(encoding="utf-8", errors="replace") as lines:
            curves = read_curves(lines)
        if any(curves.values()):
            found.append((log.parent.name or log.stem, curves))
        else:
            empty.append(f"{log} contains no training: it failed, or was made without --log-format json")
    if not found:
        raise ValueError("; ".join(empty))
    panels: List[Panel] = []
    for title in PANELS:
        lines_of_logs = []
        for name, curves in found:
            lines_of_logs.append(Line(sorted(curves[title].items()), name))
        if any(line.points for line in lines_of_logs):
            panels.append(Panel(lines_of_logs, {"xlabel": "updates", "ylabel": title}))
    draw_panels(panels, output)
    drawn = [f"{name}: {max(max(points, default=0) for points in curves.values()):,} updates" for name, curves in found]
    return drawn, empty


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``curves``."""
    parser.add_argument("logs", type=Path, nargs="+", metavar="LOG", help="train.log of one or several runs")
    parser.add_argument("--output", type=Path, required=True, help="image to write")


def run(options: argparse.Namespace) -> None:
    """Draw the plot."""
    drawn, left_out = draw(options.logs, options.output)
    print("\n".join([*drawn, *left_out, f"plot: {options.output}"]))


REPORT = Report("Plot training curves from fairseq's JSON logs.", add_options, run)
