"""The papers' tables of the Long Range Arena and of speech, with the runs of their results."""

import argparse
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from fairseq_mega.lab.evaluate.lra_runs import LRA, REMEDY, TASKS, name_of, shortened, stuck
from fairseq_mega.lab.report.numbers import mean_and_deviation
from fairseq_mega.lab.report.paper_table import MEASURED, PaperTable, Row, where
from fairseq_mega.lab.runs.provenance import machine_of
from fairseq_mega.lab.runs.results import Result, is_trained_here, read_result
from fairseq_mega.lab.runs.text_tables import Table, table_of

STAR = "* fewer updates than in the paper, see the runs: not comparable with the paper's numbers"
ORDER = ("transformer", "s4d", "softmax", "relu2", "laplace")  # models and attention functions in lists of runs


def accuracy(results: Sequence[Result]) -> str:
    """Return the test accuracy over the seeds, with a star if a training was shorter than the paper's."""
    if not results:
        return "-"
    star = "*" if any(map(shortened, results)) else ""
    return mean_and_deviation([result["scores"]["test_accuracy"] for result in results]) + star


def average(results: Sequence[Result], tasks: Sequence[str] = LRA) -> str:
    """Return the mean over the tasks of the Long Range Arena, if each was measured."""
    found = [[result for result in results if result["settings"].get("task") == task] for task in tasks]
    if not all(found):
        return "-"
    means = [statistics.mean(result["scores"]["test_accuracy"] for result in own) for own in found]
    star = "*" if any(shortened(result) for own in found for result in own) else ""
    return f"{statistics.mean(means):.2f}{star}"


def learned(results: Sequence[Result]) -> str:
    """Return the share of the seeds that rose above chance."""
    return f"{sum(not stuck(result) for result in results)}/{len(results)}" if results else "-"


def order(result: Result) -> Tuple[Any, ...]:
    """Sort key of runs: baselines, then tasks, chunks and attention functions."""
    settings = result["settings"]
    if settings["model"] in ORDER:
        return (ORDER.index(settings["model"]),)
    return len(ORDER), list(TASKS).index(settings["task"]), settings["chunk"], ORDER.index(settings["attention"])


def run_table(results: Sequence[Result]) -> Table:
    """Return a row per setting: its runs, their early accuracy, time and memory, and the machine of their training."""
    groups: Dict[str, List[Result]] = {}
    for result in results:
        groups.setdefault(name_of(result), []).append(result)

    def each(group: Sequence[Result], setting: str) -> str:
        return "/".join(f"{value:,}" for value in sorted({result["settings"][setting] for result in group}))

    def mean(group: Sequence[Result], score: str, digits: int) -> str:
        values = [result["scores"][score] for result in group if score in result["scores"]]
        return f"{statistics.mean(values):,.{digits}f}" if values else "-"

    return table_of(
        [
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
            for name, group in groups.items()
        ]
    )


def warnings(results: Sequence[Result]) -> List[str]:
    """Return lines on runs that are no better than chance, without those on invented data (--smoke)."""
    lines = []
    for result in filter(stuck, results):
        if result["benchmark"].endswith("-smoke"):
            continue
        accuracy = result["scores"]["best_valid_accuracy"]
        settings = result["settings"]
        short = f" (after {settings['updates']:,} of {settings['published_updates']:,} updates: too early to tell)"
        text = f"no better than chance: {name_of(result)}, seed {result['seed']}: best validation accuracy "
        lines.append(f"{text}{accuracy:.2f} %{short * shortened(result)}")
    return [*lines, *([REMEDY] if lines else [])]


def speed_note(speed: Optional[Result]) -> List[str]:
    """Return a line that names the machine of the speed and memory; no line without a result."""
    if speed is None:
        return []
    gpus = speed["hardware"].get("gpus") or [speed["hardware"].get("processor", "CPU")]
    base = speed["settings"].get("models", "transformer").split(",")[0]
    return [f"speed and memory measured: {speed['label']}, beside {base} (1x), on {gpus[0]}"]


@dataclass(frozen=True)
class ClassifierTable(PaperTable):
    """A table of classifiers: below each measured row the seeds that rose above chance, below the table the runs.

    Attributes:
        chunk: attention chunk of the results, a default of the option --chunk; None without the option.
        chunk_words: words on the chunk in the names of measured rows.
    """

    star: str = STAR
    chunk: Optional[int] = None
    chunk_words: Callable[[int], str] = "C = {}".format

    def selected(self, results: Sequence[Result], name: str, **settings: Any) -> List[Result]:
        """Return the results of a row, with the setting ``chunk`` if the table has the option."""
        chunk = settings.get("chunk", self.chunk)
        found = super().selected(results, name)
        return found if chunk is None else list(filter(where(chunk=chunk), found))

    def measured(self, results: Sequence[Result], name: str, **settings: Any) -> Iterator[Row]:
        """Yield two rows for each group of results; the setting ``speed`` is a result."""
        chunk, speed = settings.get("chunk", self.chunk), settings.get("speed")
        title = MEASURED if chunk is None else f"{MEASURED}, {self.chunk_words(chunk)}"
        for first, found in self.split(self.selected(results, name, **settings), title):
            row = self.row(first, found, name)
            if self.speed is not None and speed is not None and first == title:
                keys = [f"{self.speed.models.get(name)} {column.title}" for column in self.columns]
                scores = [speed["scores"].get(key) for key in keys]
                row[1:] = [cell if score is None else f"{score:.2f}x" for cell, score in zip(row[1:], scores)]
            yield row
            if "not yet" not in row:
                shares = [one.text is accuracy and learned(list(filter(one.rule, found))) for one in self.columns]
                yield ["  runs above chance", *(share or "" for share in shares)]

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add the options of the report."""
        super().add_options(parser)
        if self.speed is not None:
            benchmark = f"python -m fairseq_mega.lab.benchmarks {self.speed.benchmark[0]}"
            parser.add_argument("--speed", type=Path, help=f"result file of {benchmark}")
        if self.chunk is not None:
            shown = ", full attention" if self.chunk < 0 else ""
            about = f"attention chunk (default: %(default)s{shown})"
            parser.add_argument("--chunk", type=int, default=self.chunk, help=about)

    def settings(self, options: argparse.Namespace) -> Dict[str, Any]:
        """Return the chunk and the result of the speed, as far as there are such options."""
        found: Dict[str, Any] = {} if self.chunk is None else {"chunk": options.chunk}
        if self.speed is not None and options.speed is not None:
            found["speed"] = read_result(options.speed)
        return found

    def below(self, results: Sequence[Result], **settings: Any) -> Tuple[List[Table], List[str], Sequence[Result]]:
        """Return the table of the runs, the machine of the speed, runs at chance, and the results in the table."""
        shown = sorted(self.shown(results, **settings), key=order)
        trained = list(filter(is_trained_here, shown))
        notes = [*speed_note(settings.get("speed")), *warnings(trained)]
        return [run_table(trained)] if trained else [], notes, shown
