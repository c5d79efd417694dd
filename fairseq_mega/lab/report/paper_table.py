"""The tables of the papers as data, with measured rows under the rows that recipes train."""

import argparse
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from fairseq_mega.lab.recipes.paper_values import row_title
from fairseq_mega.lab.report.alike import read_alike
from fairseq_mega.lab.runs.report import Report, add_results, all_results, benchmark_read, show, warn_of_smoke
from fairseq_mega.lab.runs.results import GIVEN, Result, ResultError, changes_of, is_trained_here
from fairseq_mega.lab.runs.text_tables import Table

Row = List[str]
Rule = Callable[[Result], bool]
Groups = List[Tuple[str, List[Result]]]  # measured rows, by name
MEASURED = "  measured"  # name of a row


def where(**settings: Any) -> Rule:
    """Return a rule for results with these settings."""
    return lambda result: all(result["settings"].get(key) == value for key, value in settings.items())


def parameters(results: Sequence[Result]) -> str:
    """Return the parameters of a model."""
    return f"{results[0]['settings']['parameters']:,}" if results else "-"


class Column(NamedTuple):
    """A column: its title, the text of a cell's results ("-" without results), and the rule for them among a row's.

    Without a text, a measured cell repeats the paper's.
    """

    title: str
    text: Optional[Callable[[Sequence[Result]], str]]
    rule: Rule = where()

    def cell(self, results: Sequence[Result], paper: str) -> str:
        """Return the text of the column's results."""
        return paper if self.text is None else self.text(list(filter(self.rule, results)))


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


@dataclass(frozen=True)
class PaperTable:
    """A table of a paper.

    Attributes:
        title: its paper, its number and its subject.
        benchmarks: of its results.
        recipes: folders of the recipes of its results.
        name: title of the column of the rows' names.
        columns: the other columns.
        rows: published cells by name; the recipes contain their own published values.
        trained: the rows that recipes train, with the rule for their results; None for a row that the recipes of
            another table train. All other rows are quoted.
        split: distributes the results of a trained row over measured rows; no results over one row.
        values_from: the paper of a row's values, if it is another paper.
        notes: lines below the table.
        star: explanation of the star at a cell.
        averaged: whether cells are means over seeds; a table of language models has a row for each result.
        script: makes the results, without which the table is not printed.
        speed: columns that a benchmark fills, whose result file the option --speed of a table of classifiers names.
    """

    title: str
    benchmarks: Tuple[str, ...]
    recipes: Tuple[str, ...]
    name: str
    columns: Sequence[Column]
    rows: Mapping[str, Sequence[str]]
    trained: Mapping[str, Optional[Rule]]
    split: Callable[[List[Result], str], Groups] = lambda results, name: [(name, results)]
    values_from: Mapping[str, str] = field(default_factory=dict)
    notes: Tuple[str, ...] = ()
    star: str = ""
    averaged: bool = True
    script: str = ""
    speed: Optional[SpeedColumns] = None

    def of(self, results: Sequence[Result], **settings: Any) -> Table:
        """Return the table with the measured rows under each trained row."""
        rows: List[Row] = []
        kinds = by_kind(results)
        for name, cells in self.rows.items():
            rows.append([row_title(name, name in self.trained, self.values_from.get(name, "")), *cells])
            for title, found in kinds.items() if self.trained.get(name) else ():
                for first, *others in self.measured(found, name, **settings):
                    if title == "measured":
                        rows.append([first, *others])
                    elif "measured" in first and "not yet" not in others:
                        rows.append([first.replace("measured", title), *others])
        return Table([self.name, *(column.title for column in self.columns)], rows)

    def of_recipes(self, results: Sequence[Result]) -> Table:
        """Return the table with the results of its recipes."""
        return self.of(of_folders(self.recipes, results))

    def selected(self, results: Sequence[Result], name: str, **settings: Any) -> List[Result]:
        """Return the results of a row."""
        rule = self.trained.get(name)
        return [] if rule is None else list(filter(rule, results))

    def shown(self, results: Sequence[Result], **settings: Any) -> List[Result]:
        """Return the results that a row shows."""
        return [result for result in results if any(self.selected([result], name, **settings) for name in self.rows)]

    def measured(self, results: Sequence[Result], name: str, **settings: Any) -> Iterator[Row]:
        """Yield the measured rows under a trained row."""
        for title, found in self.split(self.selected(results, name, **settings), MEASURED):
            yield self.row(title, found, name)

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

    def read(self, options: argparse.Namespace) -> List[Result]:
        """Read the results that the options select.

        Raises:
            ResultError: if a cell would be a mean over results of different settings, or without required results.
        """
        read = read_alike if self.averaged else all_results
        results = [result for name in self.benchmarks for result in read(options, name)]
        if self.script:
            results = self.shown(results)
            if not results:
                name = " or ".join(benchmark_read(options, name) for name in self.benchmarks)
                raise ResultError(
                    f"{options.results} has no result of {name} for this table: run scripts/{self.script}"
                )
        return results

    def settings(self, options: argparse.Namespace) -> Dict[str, Any]:
        """Return the settings of the table's content."""
        return {}

    def below(self, results: Sequence[Result], **settings: Any) -> Tuple[List[Table], List[str], Sequence[Result]]:
        """Return further tables, notes on the results, and the results whose origin is listed."""
        return [], [], results

    def run(self, options: argparse.Namespace) -> None:
        """Print the table, what is below it, its notes, and the origin of its results."""
        results, settings = self.read(options), self.settings(options)
        table = self.of(results, **settings)
        tables, notes, listed = self.below(results, **settings)
        stars = [self.star] if any(cell.endswith("*") for row in table.rows for cell in row) else []
        show(options, [table, *tables], listed, [*notes, *self.notes, *stars])
        warn_of_smoke(options.smoke)

    @property
    def report(self) -> Report:
        """Return the report of the table."""
        paper, _, number = self.title.partition(", ")
        return Report(f"Print {paper}'s {number}.", self.add_options, self.run)
