"""Plot MEGA's Figure 4 (accuracy over the EMA's dimensions and over the chunk) or 5 (validation curves on Pathfinder).

python -m fairseq_mega.reports.lra_plots 4 RESULTS --output figure4.png
"""

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

from fairseq_mega.reports.lra_tables import BENCHMARK, EMA_DIM, TASKS, Result, mega, notes, run_lines, select, spread
from fairseq_mega.reports.plotting import load_pyplot, save
from fairseq_mega.reports.results import read_results

Points = Dict[int, List[Result]]


def over(results: Sequence[Result], task: str, axis: str, fixed: int) -> Points:
    """Results of a task's MEGA by ``axis``, "ema_dim" or "chunk", in rising order (full attention last).

    ``fixed`` is the value of the other one.
    """
    other = "chunk" if axis == "ema_dim" else "ema_dim"
    found = select(results, task=task, model="mega", attention=TASKS[task].attention, **{other: fixed})
    values = sorted({run["settings"][axis] for run in found}, key=lambda value: value if value >= 0 else sys.maxsize)
    return {value: select(found, **{axis: value}) for value in values}


def label_of(value: int) -> str:
    """A value on an axis."""
    return "full" if value < 0 else str(value)


def figure4(results: Sequence[Result], chunk: int, output: Path) -> Tuple[List[str], List[Result]]:
    """Draw both panels; return the numbers as lines and the results that are in them.

    Raises:
        ValueError: if there is none.
    """
    lines: List[str] = []
    used: List[Result] = []
    panels = []
    for axis, title, fixed in (
        ("ema_dim", f"EMA dimensions N ({'full attention' if chunk < 0 else f'C = {chunk}'})", chunk),
        ("chunk", f"chunk C (N = {EMA_DIM})", EMA_DIM),
    ):
        curves = {task: over(results, task, axis, fixed) for task in ("text", "image")}
        panels.append((title, curves))
        lines += [f"{title}: test accuracy"]
        for task, points in curves.items():
            for value, runs in points.items():
                accuracy = spread([run["scores"]["test_accuracy"] for run in runs])
                lines.append(f"{TASKS[task].title:>8} {label_of(value):>6} {accuracy}")
                used += [run for run in runs if run not in used]
    if not used:
        raise ValueError(f"no result of MEGA on Text or Image with --chunk {chunk} or N = {EMA_DIM}")
    figure, axes = load_pyplot().subplots(1, 2, figsize=(11, 4))
    for panel, (title, curves) in zip(axes, panels):
        # Evenly spaced, for 0 and "full" have no place on a logarithmic axis.
        ticks = sorted({value for points in curves.values() for value in points}, key=lambda v: v if v >= 0 else 1e9)
        for task, points in curves.items():
            means = [statistics.mean(r["scores"]["test_accuracy"] for r in runs) for runs in points.values()]
            panel.plot([ticks.index(value) for value in points], means, marker="o", label=TASKS[task].title)
        panel.set(xlabel=title, ylabel="test accuracy, %")
        panel.set_xticks(range(len(ticks)), [label_of(value) for value in ticks])
        panel.grid(True, alpha=0.3)
        panel.legend()
    save(figure, output)
    return lines, used


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


def main(arguments: Optional[List[str]] = None) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(prog="lra_plots", description=__doc__)
    add = parser.add_argument
    add("figure", type=int, choices=(4, 5), help="number of the figure")
    add("results", type=Path, help="folder of result files")
    add("--chunk", type=int, default=-1, help="of Figure 5 and of Figure 4's left panel (default: -1, full attention)")
    add("--output", type=Path, required=True, help="image to write")
    add("--smoke", action="store_true", help="read the results of a --smoke run")
    options = parser.parse_args(arguments)
    try:
        results = read_results(options.results, BENCHMARK + ("-smoke" if options.smoke else ""))
        lines, used = (figure4 if options.figure == 4 else figure5)(results, options.chunk, options.output)
    except (OSError, ValueError) as error:
        print(f"lra_plots: error: {error}", file=sys.stderr)
        return 1
    print("\n".join([*lines, *run_lines(used), *notes(used), f"plot: {options.output}"]))
    if options.smoke:
        print("SMOKE RUN on made-up data: these numbers mean nothing")
    return 0


if __name__ == "__main__":
    sys.exit(main())
