"""The tables of the papers as data, with measured rows under the rows that recipes train."""

import argparse
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from fairseq_mega.lab.recipes.paper_values import row_title
from fairseq_mega.lab.report.alike import read_alike
from fairseq_mega.lab.runs.report import Report, add_results, all_results, benchmark_read, show, warn_of_smoke
from fairseq_mega.lab.runs.results import GIVEN, Result, ResultError, changes_of, is_trained_here
from fairseq_mega.lab.runs.text_tables import Table

Rows = List[List[str]]


def below(folders: Sequence[str], results: Sequence[Result]) -> List[Result]:
    """Return the results of the recipes in some folders."""
    names = tuple(f"{folder}/" for folder in folders)
    return [result for result in results if result["settings"]["recipe"].startswith(names)]


def by_weights(results: Sequence[Result]) -> Dict[str, List[Result]]:
    """Group results of weights that were trained elsewhere by title: the authors, or each archive or file.

    Weights with other options than the recipe's form a separate group.
    """
    groups: Dict[Tuple[str, str], List[Result]] = {}
    for result in results:
        about = result["settings"][GIVEN]
        place, inside, _ = about["source"].partition(", ")
        title = "authors' weights" if about["authors"] else f"weights of {place}"
        title += " of other settings" if about.get("differs") else ""
        groups.setdefault((title, "" if inside or about["authors"] else about["sha256"]), []).append(result)
    return {f"{title}, {digest[:8]}" if digest else title: found for (title, digest), found in groups.items()}


def titled_rows(title: str, rows: Rows) -> Rows:
    """Return the measured rows with a score, with a title in place of "measured"."""
    found = [[name.replace("measured", title), *cells] for name, *cells in rows if "measured" in name]
    return [row for row in found if "not yet" not in row]


def print_table(table: "PaperTable", options: argparse.Namespace) -> None:
    """Print a table, its notes, and the origin of its results."""
    results = table.read(options)
    show(options, [table.of(results)], results, table.notes)
    warn_of_smoke(options.smoke)


class SpeedColumns(NamedTuple):
    """Columns of training speed and memory: the recipes' cells, and the benchmark's words."""

    cell: Mapping[str, Any]
    benchmark: Sequence[str]


@dataclass(frozen=True)
class PaperTable:
    """A table of a paper.

    Attributes:
        title: its paper, its number and its subject.
        benchmarks: of its results.
        recipes: folders of the recipes of its results.
        columns: titles, the first one of the rows' names.
        rows: published cells by name; the recipes contain their own published values.
        trained: the rows that recipes train, with the settings that identify their results; None for a row that the
            recipes of another table train. All other rows are quoted.
        measured: makes the rows under a trained one, from the results and its entry in ``trained``.
        values_from: the paper of a row's values, if it is another paper.
        notes: lines below the table.
        averaged: whether cells are means over seeds; a table of language models has a row for each result.
        speed: columns that a benchmark fills, whose result file the option --speed names.
        add_options: adds the options of its report.
        run: prints the table.
    """

    title: str
    benchmarks: Tuple[str, ...]
    recipes: Tuple[str, ...]
    columns: Sequence[str]
    rows: Mapping[str, Sequence[str]]
    trained: Mapping[str, Optional[str]]
    measured: Callable[..., Rows]
    values_from: Mapping[str, str] = field(default_factory=dict)
    notes: Tuple[str, ...] = ()
    averaged: bool = True
    speed: Optional[SpeedColumns] = None
    add_options: Callable[[argparse.ArgumentParser], None] = add_results
    run: "Callable[[PaperTable, argparse.Namespace], None]" = print_table

    def read(self, options: argparse.Namespace) -> List[Result]:
        """Read the results that the options select.

        Raises:
            ResultError: if a cell would be a mean over results of different settings.
        """
        read = read_alike if self.averaged else all_results
        return [result for name in self.benchmarks for result in read(options, name)]

    def require(self, results: Sequence[Result], options: argparse.Namespace, script: str, models: str = "") -> None:
        """Raise a ResultError that names the script if some models have no results."""
        if not results:
            name = " or ".join(benchmark_read(options, name) for name in self.benchmarks) + (models and f" by {models}")
            raise ResultError(f"{options.results} has no result of {name}; run scripts/{script} first")

    def of(self, results: Sequence[Result], **settings: Any) -> Table:
        """Return the table with the measured rows under each trained row; ``measured`` receives the settings, too."""
        rows: Rows = []
        scored = by_weights([result for result in results if not is_trained_here(result)])
        trained: List[Result] = []
        titles = {f"{title}, scored here": found for title, found in scored.items()}
        for result in filter(is_trained_here, results):
            changes = changes_of(result)
            of_row = titles.setdefault(f"measured, with {changes}", []) if changes else trained
            of_row.append(result)
        for name, cells in self.rows.items():
            rows.append([row_title(name, name in self.trained, self.values_from.get(name, "")), *cells])
            key = self.trained.get(name)
            if key is not None:
                rows += self.measured(trained, key, **settings)
                for title, found in titles.items():
                    rows += titled_rows(title, self.measured(found, key, **settings))
        return Table(self.columns, rows)

    def of_recipes(self, results: Sequence[Result]) -> Table:
        """Return the table with the results of its recipes."""
        return self.of(below(self.recipes, results))

    @property
    def report(self) -> Report:
        """Return the report of the table."""
        paper, _, number = self.title.partition(", ")
        return Report(f"Print {paper}'s {number}.", self.add_options, lambda options: self.run(self, options))
