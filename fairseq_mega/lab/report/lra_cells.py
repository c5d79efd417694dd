"""Cells and lines about runs of the Long Range Arena and of speech."""

import statistics
from typing import Dict, List, Sequence

from fairseq_mega.lab.evaluate.lra_runs import REMEDY, Result, name_of, shortened, stuck
from fairseq_mega.lab.runs.provenance import machine_of
from fairseq_mega.lab.runs.text_tables import Table, aligned, table_of

INTERPRETATION = "measured rows: our interpretation, because the paper leaves the architecture of classifiers open"


def mean_and_deviation(values: Sequence[float], digits: int = 2) -> str:
    """Return the mean and, for two or more values, the standard deviation."""
    mean = f"{statistics.mean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ±{statistics.stdev(values):.{digits}f}"


def cell(results: Sequence[Result]) -> str:
    """Return the test accuracy of the seeds of one setting, with a star if a training was shorter than the paper's."""
    if not results:
        return "-"
    star = "*" if any(map(shortened, results)) else ""
    return mean_and_deviation([result["scores"]["test_accuracy"] for result in results]) + star


def learned(results: Sequence[Result]) -> str:
    """Return the share of the seeds that rose above chance."""
    return f"{sum(not stuck(result) for result in results)}/{len(results)}" if results else "-"


def average(cells: Sequence[Sequence[Result]]) -> str:
    """Return the mean over tasks, if each was measured."""
    if not all(cells):
        return "-"
    means = [statistics.mean(result["scores"]["test_accuracy"] for result in results) for results in cells]
    return f"{statistics.mean(means):.2f}" + (
        "*" if any(shortened(result) for some in cells for result in some) else ""
    )


def measured_rows(name: str, cells: Sequence[Sequence[Result]], last: Sequence[str]) -> List[List[str]]:
    """Return two rows under the paper's, or one row without results."""
    if not any(cells):
        return [[name, "not yet", *["-"] * (len(cells) - 1), *last]]
    return [[name, *map(cell, cells), *last], ["  runs that left chance", *map(learned, cells), *[""] * len(last)]]


def speech_rows(name: str, results: Sequence[Result]) -> List[List[str]]:
    """Return parameters and accuracy under the paper's, and the seeds above chance; one row without results."""
    if not results:
        return [[name, "-", "not yet"]]
    first = [name, f"{results[0]['settings']['parameters']:,}", cell(results)]
    return [first, ["  runs that left chance", "", learned(results)]]


def run_table(results: Sequence[Result]) -> Table:
    """Return a row per setting: its runs, their early accuracy, time and memory, and the machine of their training."""
    rows = []
    groups: Dict[str, List[Result]] = {}
    for result in results:
        groups.setdefault(name_of(result), []).append(result)
    for name, group in groups.items():
        rows.append(
            {
                "Runs": name,
                "seeds": ",".join(str(result["seed"]) for result in group),
                "updates": each(group, "updates"),
                "of": each(group, "published_updates"),
                "early valid.": mean(group, "early_valid_accuracy", 2),
                "at epoch": each(group, "early_epoch"),
                "s per epoch": mean(group, "seconds_per_epoch", 1),
                "peak GiB": mean(group, "peak_memory_gib", 2),
                "parameters": f"{group[0]['settings']['parameters']:,}",
                "on": machine_of(group[0]),
            }
        )
    return table_of(rows)


def each(results: Sequence[Result], setting: str) -> str:
    """Return the different values of a setting, rising."""
    return "/".join(f"{value:,}" for value in sorted({result["settings"][setting] for result in results}))


def mean(results: Sequence[Result], score: str, digits: int) -> str:
    """Return the mean of a score, which some results may lack."""
    values = [result["scores"][score] for result in results if score in result["scores"]]
    return f"{statistics.mean(values):,.{digits}f}" if values else "-"


def run_lines(results: Sequence[Result]) -> List[str]:
    """Return the runs as lines for a terminal."""
    table = run_table(results)
    lines = [aligned(row[0], row[1:-1], first=42) + f"  on {row[-1]}" for row in table.rows]
    return ["", aligned(table.columns[0], table.columns[1:-1], first=42), *lines]


def notes(results: Sequence[Result]) -> List[str]:
    """Return warnings of runs that are stuck at chance or were shorter than the paper's."""
    lines = []
    for result in filter(stuck, results):
        accuracy = result["scores"]["best_valid_accuracy"]
        text = f"STUCK AT CHANCE: {name_of(result)}, seed {result['seed']}: best validation accuracy {accuracy:.2f} %"
        settings = result["settings"]
        short = f" (after {settings['updates']:,} of {settings['published_updates']:,} updates: too early to tell)"
        lines.append(text + (short if shortened(result) else ""))
    if lines:
        lines.append(REMEDY)
    if any(map(shortened, results)):
        lines.append("* fewer updates than in the paper, see the runs: not comparable with the paper's numbers")
    return lines
