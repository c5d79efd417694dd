"""MEGA's Figure 5: validation curves on Pathfinder."""

import argparse
from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple

from fairseq_mega.reports.lra_cells import notes, run_lines
from fairseq_mega.reports.lra_runs import BENCHMARK, Result, mega
from fairseq_mega.reports.plotting import load_pyplot, save
from fairseq_mega.reports.report import Report, add_results, given_results, warn_of_smoke


def figure5(results: Sequence[Result], chunk: int, output: Path) -> Tuple[List[str], List[Result]]:
    """Draw one validation curve per seed of each attention function; return lines and results as figure4.

    Raises:
        ValueError: if there is no result.
    """
    found = {function: mega(results, "pathfinder", chunk, function) for function in ("laplace", "relu2", "softmax")}
    used = [run for runs in found.values() for run in runs]
    if not used:
        raise ValueError(f"no result of MEGA on Pathfinder with --chunk {chunk}")
    figure, panel = load_pyplot().subplots(figsize=(7, 4))
    lines = ["Pathfinder, validation accuracy: last, best, largest fall from one validation to the next"]
    for number, (function, runs) in enumerate(found.items()):
        for run in runs:
            curve: List[Dict[str, Any]] = run["curve"]
            accuracies = [point["accuracy"] for point in curve]
            name = f"{function}, seed {run['seed']}"
            style = {"color": f"C{number}", "marker": "." if len(curve) < 20 else None, "alpha": 0.8}
            panel.plot([point["updates"] for point in curve], accuracies, label=name, **style)
            fall = max((before - after for before, after in zip(accuracies, accuracies[1:])), default=0.0)
            lines.append(f"{name:<18} {accuracies[-1]:>7.2f} {max(accuracies):>7.2f} {max(fall, 0.0):>7.2f}")
    panel.set(xlabel="updates", ylabel="validation accuracy, %", title="Pathfinder")
    panel.grid(True, alpha=0.3)
    panel.legend()
    save(figure, output)
    return lines, used


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``figure5``."""
    add_results(parser)
    parser.add_argument("--chunk", type=int, default=-1, help="attention chunk (default: -1, full attention)")
    parser.add_argument("--output", type=Path, required=True, help="image to write")


def run(options: argparse.Namespace) -> None:
    """Draw the plot, and print its numbers and the runs that are in it."""
    lines, used = figure5(given_results(options, BENCHMARK), options.chunk, options.output)
    print("\n".join([*lines, *run_lines(used), *notes(used), f"plot: {options.output}"]))
    warn_of_smoke(options)


REPORT = Report("Plot MEGA's Figure 5: validation curves on Pathfinder.", add_options, run)
