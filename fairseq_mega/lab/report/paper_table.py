"""A table of a paper as data, with measured rows under the rows that recipes train."""

import argparse
import statistics
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from fairseq_mega.lab.evaluate.lra_runs import REMEDY, TASKS, name_of, shortened, stuck
from fairseq_mega.lab.recipes.paper_values import row_title
from fairseq_mega.lab.recipes.recipe import FOLDER, load
from fairseq_mega.lab.report.alike import read_alike
from fairseq_mega.lab.runs.provenance import machine_of
from fairseq_mega.lab.runs.report import Report, add_results, all_results, show, warn_of_smoke
from fairseq_mega.lab.runs.results import GIVEN, Result, changes_of, is_trained_here, read_result
from fairseq_mega.lab.runs.text_tables import Table, table_of

Row = List[str]
Rule = Callable[[Result], bool]
Text = Callable[[Sequence[Result]], str]  # of a cell, from its results
Groups = List[Tuple[str, List[Result]]]  # measured rows, by name
FULL = -1  # chunk of full attention
MEASURED = "  measured"  # name of a row
PAPER, VALUE = "paper", "="  # see papers.yaml
ORDER = ("transformer", "s4d", "softmax", "relu2", "laplace")  # models and attention functions in lists of runs


def rule_of(settings: Mapping[str, Any]) -> Rule:
    """Return a rule for results with these settings.

    A list holds several values of a setting; ``paper`` is the setting of the paper's recipe for the result's task.
    ``chunked`` is whether attention is in chunks, ``label`` the first word of the label.
    """

    def has(result: Result, key: str, value: Any) -> bool:
        found = result["settings"]
        if key == "chunked":
            return bool((found["chunk"] != FULL) == value)
        if key == "label":
            return bool(result["label"].split(".")[0] == value)
        if value == PAPER:
            value = getattr(TASKS[found["task"]], key)
        return found.get(key) in value if isinstance(value, list) else bool(found.get(key) == value)

    return lambda result: all(has(result, key, value) for key, value in settings.items())


class Column(NamedTuple):
    """A column: its title, the text of a cell, the settings of the cell's results, and their metric.

    Without a text, a measured cell repeats the paper's. A column of a summary has a source: another table and the title
    of its column, whose rows are named in place of published cells.
    """

    title: str
    text: Optional[Text]
    settings: Mapping[str, Any] = {}
    metric: str = ""
    source: Tuple[str, ...] = ()

    def cell(self, results: Sequence[Result], paper: str) -> str:
        """Return the text of the column's results among those of a row."""
        return paper if self.text is None else self.text(list(filter(rule_of(self.settings), results)))


class SpeedColumns(NamedTuple):
    """Columns of training speed and memory: the recipes' cells, the benchmark's words, and its models by row."""

    cell: Mapping[str, Any]
    benchmark: Sequence[str]
    models: Mapping[str, str]


def of_folders(folders: Sequence[str], results: Sequence[Result]) -> List[Result]:
    """Return the results of the recipes in some folders."""
    names = tuple(f"{folder}/" for folder in folders)
    return [result for result in results if result["settings"]["recipe"].startswith(names)]


def by_kind(results: Sequence[Result]) -> Dict[str, List[Result]]:
    """Group results by the words that name their measured rows.

    Trainings of the recipes come first. Changed recipes have rows of their own, and so have weights that were trained
    elsewhere: the authors', and those of each archive or file, apart from those with other options than the recipe's.
    """
    groups: Dict[str, List[Result]] = {"measured": []}
    for result in sorted(results, key=is_trained_here):  # weights first
        changes, title = changes_of(result), "measured"
        if not is_trained_here(result):
            about = result["settings"][GIVEN]
            place, inside, _ = about["source"].partition(", ")
            title = "authors' weights" if about["authors"] else f"weights of {place}"
            title += " of other settings" if about.get("differs") else ""
            title += ", scored here" if inside or about["authors"] else f", {about['sha256'][:8]}, scored here"
        elif changes:
            title = f"measured, with {changes}"
        groups.setdefault(title, []).append(result)
    return groups


# Runs of classifiers.


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
        best, settings = result["scores"]["best_valid_accuracy"], result["settings"]
        short = f" (after {settings['updates']:,} of {settings['published_updates']:,} updates: too early to tell)"
        text = f"no better than chance: {name_of(result)}, seed {result['seed']}: best validation accuracy "
        lines.append(f"{text}{best:.2f} %{short * shortened(result)}")
    return [*lines, *([REMEDY] if lines else [])]


def speed_note(speed: Result) -> str:
    """Return a line that names the machine of the speed and memory."""
    gpus = speed["hardware"].get("gpus") or [speed["hardware"].get("processor", "CPU")]
    base = speed["settings"].get("models", "transformer").split(",")[0]
    return f"speed and memory measured: {speed['label']}, beside {base} (1x), on {gpus[0]}"


@dataclass(frozen=True)
class PaperTable:
    """A table of a paper, as papers.yaml describes it.

    Attributes:
        find: returns another table of the file.
        published: the published cells, whose values of recipes and cells of other tables :attr:`rows` has.
    """

    title: str
    name: str
    benchmarks: Sequence[str]
    recipes: Sequence[str]
    columns: Sequence[Column]
    published: Mapping[str, Union[Sequence[str], Mapping[str, str]]]
    trained: Mapping[str, Optional[Rule]]
    split: Callable[[List[Result], str], Groups]
    find: Callable[[str], "PaperTable"]
    values: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()
    star: str = ""
    averaged: bool = True
    runs: bool = False
    chunk: Tuple[Optional[int], str] = (None, "")
    speed: Optional[SpeedColumns] = None

    @cached_property
    def rows(self) -> Dict[str, List[str]]:
        """Return the published cells by the names of their rows."""
        found = {}
        for name, cells in self.published.items():
            if isinstance(cells, Mapping):
                ((table, row),) = cells.items()
                cells = self.find(table).rows[row]
            found[name] = [self.value(name, cell, column) for cell, column in zip(cells, self.columns)]
        return found

    def value(self, name: str, cell: str, column: Column) -> str:
        """Return a published cell, which may be the value of the row's recipe; "fails" where there is no recipe."""
        if column.source and cell != "-":
            table = self.find(column.source[0])
            return table.rows[cell][[one.title for one in table.columns].index(column.source[1])]
        if cell != VALUE:
            return cell
        recipe, _, metric = self.values[name].partition(" ")
        part = column.settings.get("task") or column.settings.get("direction", "")
        path = FOLDER / f"{recipe.replace('*', part)}.yaml"
        return f"{load(path).paper[metric or column.metric]:.2f}" if path.exists() else "fails"

    def source(self, name: str) -> str:
        """Return the paper of a row's values, if it is another paper."""
        paths = FOLDER.glob(f"{self.values[name].partition(' ')[0]}.yaml") if name in self.values else iter(())
        return next((load(path).values_from for path in paths), "")

    def of(self, results: Sequence[Result], chunk: Optional[int] = None, speed: Optional[Result] = None) -> Table:
        """Return the table with the measured rows under each trained row.

        Args:
            chunk: of the results, if the table has the option --chunk.
            speed: result of the benchmark that fills the columns of speed.
        """
        rows: List[Row] = []
        kinds = by_kind(results)
        for name, cells in self.rows.items():
            rows.append([row_title(name, name in self.trained, self.source(name)), *cells])
            for title, found in kinds.items() if self.trained.get(name) else ():
                for first, *others in self.measured(found, name, chunk, speed):
                    if title == "measured":
                        rows.append([first, *others])
                    elif "measured" in first and "not yet" not in others:
                        rows.append([first.replace("measured", title), *others])
        return Table([self.name, *(column.title for column in self.columns)], rows)

    def of_recipes(self, results: Sequence[Result]) -> Table:
        """Return the table with the results of its recipes."""
        return self.of(of_folders(self.recipes, results), self.chunk[0])

    def selected(self, results: Sequence[Result], name: str, chunk: Optional[int] = None) -> List[Result]:
        """Return the results of a row."""
        rule = self.trained.get(name)
        found = [] if rule is None else list(filter(rule, results))
        return found if chunk is None else list(filter(rule_of({"chunk": chunk}), found))

    def shown(self, results: Sequence[Result], chunk: Optional[int] = None) -> List[Result]:
        """Return the results that a row shows."""
        return [result for result in results if any(self.selected([result], name, chunk) for name in self.rows)]

    def measured(
        self, results: Sequence[Result], name: str, chunk: Optional[int], speed: Optional[Result]
    ) -> Iterator[Row]:
        """Yield the measured rows under a trained row; below each row of classifiers the seeds above chance."""
        words = "full attention" if chunk == FULL else self.chunk[1].format(chunk)
        title = MEASURED if chunk is None else f"{MEASURED}, {words}"
        for first, found in self.split(self.selected(results, name, chunk), title):
            row = self.row(first, found, name)
            if self.speed is not None and speed is not None and first == title:
                keys = [f"{self.speed.models.get(name)} {column.title}" for column in self.columns]
                scores = [speed["scores"].get(key) for key in keys]
                row[1:] = [cell if score is None else f"{score:.2f}x" for cell, score in zip(row[1:], scores)]
            yield row
            if self.runs and "not yet" not in row:
                above = [list(filter(rule_of(column.settings), found)) for column in self.columns]
                shares = [f"{sum(not stuck(one) for one in own)}/{len(own)}" if own else "-" for own in above]
                accuracies = [column.metric == "test_accuracy" for column in self.columns]
                yield ["  runs above chance", *(share * kind for share, kind in zip(shares, accuracies))]

    def row(self, title: str, results: Sequence[Result], name: str) -> Row:
        """Return a measured row under a trained row."""
        cells = [column.cell(results, paper) for column, paper in zip(self.columns, self.rows[name])]
        scores = [number for number, column in enumerate(self.columns) if column.text not in (None, parameters)]
        if all(cells[number] == "-" for number in scores):
            cells[scores[0]] = "not yet"
        return [title, *cells]

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add the options of the report."""
        add_results(parser)
        if self.speed is not None:
            benchmark = f"python -m fairseq_mega.lab.benchmarks {self.speed.benchmark[0]}"
            parser.add_argument("--speed", type=Path, help=f"result file of {benchmark}")
        if self.chunk[0] is not None:
            shown = ", full attention" if self.chunk[0] == FULL else ""
            about = f"attention chunk (default: %(default)s{shown})"
            parser.add_argument("--chunk", type=int, default=self.chunk[0], help=about)

    def run(self, options: argparse.Namespace) -> None:
        """Print the table, the runs of classifiers, notes, and the origin of the results.

        Raises:
            ResultError: if a cell would be a mean over results of different settings.
        """
        read = read_alike if self.averaged else all_results
        results = [result for name in self.benchmarks for result in read(options, name)]
        chunk, speed = getattr(options, "chunk", None), getattr(options, "speed", None)
        measured = None if speed is None else read_result(speed)
        tables, notes = [self.of(results, chunk, measured)], list(self.notes)
        if not self.columns[0].source:  # all results of a summary are listed
            results = self.shown(results, chunk)
        if self.runs:
            results.sort(key=order)
            trained = list(filter(is_trained_here, results))
            tables += [run_table(trained)] if trained else []
            notes = [*([speed_note(measured)] if measured else []), *warnings(trained), *notes]
        if any(cell.endswith("*") for row in tables[0].rows for cell in row):
            notes.append(self.star)
        show(options, tables, results, notes)
        warn_of_smoke(options.smoke)

    @property
    def report(self) -> Report:
        """Return the report of the table."""
        paper, _, number = self.title.partition(", ")
        return Report(f"Print {paper}'s {number}.", self.add_options, self.run)


def parameters(results: Sequence[Result]) -> str:
    """Return the parameters of a model."""
    return f"{results[0]['settings']['parameters']:,}" if results else "-"
