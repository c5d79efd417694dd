"""The tables of both papers from papers.yaml, with measured rows under the rows that recipes train.

A published value of a model that a recipe trains is in the recipe; a new table or row is an entry of papers.yaml.
"""

import statistics
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import yaml

from fairseq_mega.lab.evaluate.lra_runs import LRA, TASKS, scaling_of, shortened, stuck
from fairseq_mega.lab.recipes.recipe import FOLDER, LOADER, load
from fairseq_mega.lab.report.alike import Contents, read_alike, report_of, scores_table
from fairseq_mega.lab.report.numbers import filled_in, mean_and_deviation, record_of
from fairseq_mega.lab.runs.report import Report, all_results
from fairseq_mega.lab.runs.results import GIVEN, Result, changes_of, is_trained_here
from fairseq_mega.lab.runs.text_tables import Table

Row = List[str]
Rule = Callable[[Result], bool]
Text = Callable[[Sequence[Result]], str]  # of a cell, from its results
Groups = List[Tuple[str, List[Result]]]  # measured rows, by name
FULL = -1  # chunk of full attention
PAPER, VALUE, PARAMETERS = "paper", "=", "{parameters:,}"  # see papers.yaml
SPEED = "lra-speed"  # benchmark whose result fills columns
METRICS = {"wikitext103": ("perplexity", 2), "enwik8": ("bits_per_token", 3)}


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


# Texts of cells.


def accuracy(results: Sequence[Result], metric: str = "test_accuracy") -> str:
    """Return the test accuracy over the seeds, with a star if a training was shorter than the paper's."""
    if not results:
        return "-"
    star = "*" if any(map(shortened, results)) else ""
    return mean_and_deviation([result["scores"][metric] for result in results]) + star


def average(results: Sequence[Result]) -> str:
    """Return the mean over the tasks of the Long Range Arena, if each was measured; Transformers fail on Path-X."""
    fails = any(result["settings"]["model"] == "transformer" for result in results)
    tasks = [task for task in LRA if not (fails and task == "pathx")]
    found = [[result for result in results if result["settings"]["task"] == task] for task in tasks]
    if not all(found):
        return "-"
    means = [statistics.mean(result["scores"]["test_accuracy"] for result in own) for own in found]
    star = "*" if any(shortened(result) for own in found for result in own) else ""
    return f"{statistics.mean(means):.2f}{star}"


def top1(results: Sequence[Result], metric: str = "top1_accuracy") -> str:
    """Return the top-1 accuracy over the seeds, with a star if it cannot be compared with the paper's."""
    from fairseq_mega.lab.prepare.classification.imagenet import IMAGES  # and torch

    images = {(result["settings"].get("train_examples", IMAGES["train"]), result["examples"]) for result in results}
    other = results and images != {(IMAGES["train"], IMAGES["valid"])}
    return accuracy(results, metric).rstrip("*") + "*" * bool(other or any(map(shortened, results)))


def score(results: Sequence[Result]) -> str:
    """Return the score of a result by the metric of its data set."""
    if not results:
        return "-"
    metric, digits = METRICS[results[0]["label"].split(".")[0]]
    return f"{results[0]['scores'][metric]:.{digits}f}"


def bleu(results: Sequence[Result], metric: str) -> str:
    """Return the mean over the seeds, and from two seeds on standard deviation and number."""
    by_seed = {result["seed"]: result["scores"][metric] for result in results if metric in result["scores"]}
    count = f" ({len(by_seed)})" if len(by_seed) > 1 else ""
    return mean_and_deviation(list(by_seed.values())) + count if by_seed else "-"


TEXTS: Dict[str, Callable[..., str]] = {
    function.__name__: function for function in (accuracy, average, top1, score, bleu)
}
METRICS_OF_TEXTS = {"accuracy": "test_accuracy", "top1": "top1_accuracy"}


class Column(NamedTuple):
    """A column: the text of a cell, the settings of the cell's results, and their metric.

    A text is a function or a template that the first result fills. Without a text, a measured cell is empty; the text
    ``paper`` repeats the paper's.
    """

    title: str
    text: str = ""
    metric: str = ""
    settings: Mapping[str, Any] = {}

    def cell(self, results: Sequence[Result], paper: str) -> str:
        """Return the text of the column's results among those of a row."""
        if self.text in ("", PAPER):
            return paper if self.text else "-"
        own = list(filter(rule_of(self.settings), results))
        if "{" in self.text:
            return filled_in(self.text, record_of(own[0])) if own else "-"
        return TEXTS[self.text](own, **({"metric": self.metric} if self.metric else {}))

    def value(self, recipe: str, metric: str) -> str:
        """Return the paper's value in a recipe, whose name may have a star for the column's task or direction."""
        part = self.settings.get("task") or self.settings.get("direction", "")
        path = FOLDER / f"{recipe.replace('*', part)}.yaml"
        key = metric or self.metric or METRICS_OF_TEXTS.get(self.text, "")
        return f"{load(path).paper[key]:.2f}" if path.exists() else "fails"


class SpeedColumns(NamedTuple):
    """Columns of training speed and memory: the recipes' cells, the benchmark's words, and its models by row."""

    cell: Mapping[str, Any]
    benchmark: Sequence[str]
    models: Mapping[str, str]

    def filled(self, cells: Sequence[str], name: str, columns: Sequence[Column], measured: Result) -> List[str]:
        """Return the cells of a row with those that a result of the benchmark fills."""
        scores = [measured["scores"].get(f"{self.models.get(name)} {column.title}") for column in columns]
        return [cell if one is None else f"{one:.2f}x" for cell, one in zip(cells, scores)]


# Measured rows under a trained row.


def one_row(results: List[Result], name: str) -> Groups:
    """Make one row of all results."""
    return [(name, results)]


def by_chunk(results: List[Result], name: str) -> Groups:
    """Part results with other chunks than the paper's from the other results."""
    groups: Dict[int, List[Result]] = {FULL: []}
    for result in results:
        chunk, task = result["settings"]["chunk"], TASKS[result["settings"]["task"]]
        groups.setdefault(FULL if chunk == task.chunk else chunk, []).append(result)
    return [
        (name if chunk == FULL else f"{own[0]['settings']['model'].upper()}-chunk, C = {chunk}, measured", own)
        for chunk, own in sorted(groups.items())
    ]


def by_scaling(results: List[Result], name: str) -> Groups:
    """Part results on speech by the scaling of the recordings."""
    scalings = sorted(set(map(scaling_of, results))) or [""]
    return [(name + scaling, [one for one in results if scaling_of(one) == scaling]) for scaling in scalings]


def by_checkpoint(results: List[Result], name: str, titles: Mapping[str, str]) -> Groups:
    """Part results by the scored checkpoint; the titles are ends of names by checkpoint."""
    found = [(name + titles[kind], list(filter(rule_of({"checkpoint": kind}), results))) for kind in titles]
    return [(title, own) for title, own in found if own] or [(name, [])]


def each(results: List[Result], name: str) -> Groups:
    """Make a row for each result."""
    seeds = ["" if result["seed"] is None else f", seed {result['seed']}" for result in results]
    return [(f"{name}{seed}", [result]) for result, seed in zip(results, seeds)] or [(name, [])]


def each_model(results: List[Result], name: str) -> Groups:
    """Make a row for each result, which names the model and its context; all of a data set are below MEGA's row."""
    rows: Groups = []
    for result in results:
        settings, model = result["settings"], [*result["label"].split("."), "mega"][1]
        if model == "transformer":
            title = f"  Transformer, measured (context of at least {settings['context_window']})"
        else:
            title = "MEGA" if model == "mega" else model  # a user's recipe
            title = f"  {title}, measured (K = {settings['segments']}, chunk {settings['chunk_size']})"
        rows += each([result], title)
    return rows or [("  MEGA, measured", [])]


SPLITS = {function.__name__: function for function in (one_row, by_chunk, by_scaling, each, each_model)}


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


# Tables of papers.yaml.


@dataclass(frozen=True)
class PaperTable:
    """A table of a paper, as papers.yaml describes it.

    Attributes:
        published: the published cells, whose values of recipes and cells of other tables :attr:`rows` has.
    """

    title: str
    name: str
    benchmarks: Sequence[str]
    recipes: Sequence[str]
    columns: Sequence[Column]
    published: Mapping[str, Union[Sequence[str], Mapping[str, str]]]
    trained: Mapping[str, Optional[Rule]]
    split: Callable[[List[Result], str], Groups] = one_row
    values: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()
    star: str = ""
    averaged: bool = True
    runs: bool = False
    speed: Optional[SpeedColumns] = None

    @cached_property
    def rows(self) -> Dict[str, List[str]]:
        """Return the published cells by the names of their rows; "fails" where the row has no recipe."""
        found = {}
        for name, cells in self.published.items():
            if isinstance(cells, Mapping):
                ((table, row),) = cells.items()
                cells = PAPER_TABLES[table].rows[row]
            recipe, _, metric = self.values.get(name, "").partition(" ")
            pairs = zip(cells, self.columns)
            found[name] = [column.value(recipe, metric) if cell == VALUE else cell for cell, column in pairs]
        return found

    def source(self, name: str) -> str:
        """Return the paper of a row's values, if it is another paper."""
        paths = FOLDER.glob(f"{self.values[name].partition(' ')[0]}.yaml") if name in self.values else iter(())
        return next((load(path).values_from for path in paths), "")

    def of(self, results: Sequence[Result], speed: Optional[Result] = None) -> Table:
        """Return the table with the measured rows under each trained row.

        Args:
            speed: result of the benchmark that fills the columns of speed.
        """
        rows: List[Row] = []
        kinds = by_kind(results)
        for name, cells in self.rows.items():
            source = (self.source(name) or PAPER) if name in self.trained else "quoted"
            rows.append([f"{name}, {source}", *cells])
            for title, found in kinds.items() if self.trained.get(name) else ():
                for first, *others in self.measured(found, name, speed):
                    if title == "measured" or ("measured" in first and "not yet" not in others):
                        rows.append([first.replace("measured", title), *others])
        return Table([self.name, *(column.title for column in self.columns)], rows)

    def of_recipes(self, results: Sequence[Result]) -> Table:
        """Return the table with the results of its recipes."""
        names = tuple(f"{folder}/" for folder in self.recipes)
        return self.of([result for result in results if result["settings"]["recipe"].startswith(names)])

    def measured(self, results: Sequence[Result], name: str, speed: Optional[Result]) -> Iterator[Row]:
        """Yield the measured rows under a trained row; below each row of classifiers the seeds above chance."""
        rule = self.trained[name]
        for first, found in self.split(list(filter(rule, results)), "  measured"):
            cells = [column.cell(found, paper) for column, paper in zip(self.columns, self.rows[name])]
            if not found:
                scores = [column.text not in ("", PAPER, PARAMETERS) for column in self.columns]
                cells[scores.index(True)] = "not yet"
            if self.speed is not None and speed is not None and first == "  measured":
                cells = self.speed.filled(cells, name, self.columns, speed)
            yield [first, *cells]
            if self.runs and found:
                above = [list(filter(rule_of(column.settings), found)) for column in self.columns]
                shares = [f"{sum(not stuck(one) for one in own)}/{len(own)}" if own else "-" for own in above]
                accuracies = [column.text == "accuracy" for column in self.columns]
                yield ["  runs above chance", *(share * kind for share, kind in zip(shares, accuracies))]

    def contents(self, results: Sequence[Result]) -> Contents:
        """Return the table, the runs of classifiers, and notes."""
        speed = next((result for result in results if result["benchmark"] == SPEED), None)
        rules = [rule for rule in self.trained.values() if rule]
        own = [result for result in results if result is not speed]
        tables, notes = [self.of(own, speed)], list(self.notes)
        own = [result for result in own if any(rule(result) for rule in rules)]
        if self.runs:
            tables.append(scores_table(list(filter(is_trained_here, own))))
            notes = [*([speed_note(speed)] if speed else []), *notes]
        if any(cell.endswith("*") for row in tables[0].rows for cell in row):
            notes.append(self.star)
        return Contents(tables, own, notes)

    @property
    def report(self) -> Report:
        """Return the report of the table; results of different settings are an error where cells are means of seeds."""
        paper, _, number = self.title.partition(", ")
        benchmarks = [*self.benchmarks, *([SPEED] if self.speed else [])]
        return report_of(
            f"Print {paper}'s {number}.", benchmarks, self.contents, read_alike if self.averaged else all_results
        )


def speed_note(speed: Result) -> str:
    """Return a line that names the machine of the speed and memory."""
    gpus = speed["hardware"].get("gpus") or [speed["hardware"].get("processor", "CPU")]
    base = speed["settings"].get("models", "transformer").split(",")[0]
    return f"speed and memory measured: {speed['label']}, beside {base} (1x), on {gpus[0]}"


def table_from(about: Mapping[str, Any]) -> PaperTable:
    """Return a table by its entry in the file."""

    def column(title: str, text: str = "", metric: str = "", **settings: Any) -> Column:
        return Column(title, text, metric, settings)

    entry = {key: value for key, value in about.items() if key not in ("rows", "split", "speed")}
    entry["columns"] = [column(title, **found) for title, found in about["columns"].items()]
    entry["trained"] = {name: None if own is None else rule_of(own) for name, own in about["trained"].items()}
    split = about.get("split", "one_row")
    entry["split"] = SPLITS[split] if isinstance(split, str) else partial(by_checkpoint, titles=split)
    entry["speed"] = SpeedColumns(**about["speed"]) if "speed" in about else None
    return PaperTable(published=about["rows"], **entry)


PAPER_TABLES = {
    name: table_from(about)
    for name, about in yaml.load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"), LOADER).items()
}
