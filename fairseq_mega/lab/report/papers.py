"""The tables of both papers by report name, read from papers.yaml, and the texts of their cells.

A published value of a model that a recipe trains is in the recipe; a new table or row is an entry of papers.yaml.
"""

import statistics
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

import yaml

from fairseq_mega.lab.evaluate.lra_runs import LRA, TASKS, scaling_of, shortened
from fairseq_mega.lab.recipes.recipe import LOADER
from fairseq_mega.lab.report.numbers import mean_and_deviation
from fairseq_mega.lab.report.paper_table import (
    FULL,
    PAPER,
    Column,
    Groups,
    PaperTable,
    Rule,
    SpeedColumns,
    parameters,
    rule_of,
)
from fairseq_mega.lab.runs.results import Result

METRICS = {"wikitext103": ("perplexity", 2), "enwik8": ("bits_per_token", 3)}


# Texts of cells.


def nothing(results: Sequence[Result]) -> str:
    """Return the cell of a column that is not measured."""
    return "-"


def accuracy(results: Sequence[Result], metric: str = "test_accuracy") -> str:
    """Return the test accuracy over the seeds, with a star if a training was shorter than the paper's."""
    if not results:
        return "-"
    star = "*" if any(map(shortened, results)) else ""
    return mean_and_deviation([result["scores"][metric] for result in results]) + star


def average(results: Sequence[Result], tasks: Sequence[str] = LRA) -> str:
    """Return the mean over the tasks of the Long Range Arena, if each was measured."""
    found = [[result for result in results if result["settings"].get("task") == task] for task in tasks]
    if not all(found):
        return "-"
    means = [statistics.mean(result["scores"]["test_accuracy"] for result in own) for own in found]
    star = "*" if any(shortened(result) for own in found for result in own) else ""
    return f"{statistics.mean(means):.2f}{star}"


def mean_of_arena(results: Sequence[Result]) -> str:
    """Return the mean over the tasks, of Transformers without Path-X, on which they fail."""
    fails = any(result["settings"].get("model") == "transformer" for result in results)
    return average(results, [task for task in LRA if not (fails and task == "pathx")])


def top1(results: Sequence[Result], metric: str = "top1_accuracy") -> str:
    """Return the top-1 accuracy over the seeds, with a star if it cannot be compared with the paper's."""
    from fairseq_mega.lab.prepare.classification.imagenet import IMAGES  # and torch

    if not results:
        return "-"
    images = {(result["settings"].get("train_examples", IMAGES["train"]), result["examples"]) for result in results}
    star = "*" if any(map(shortened, results)) or images != {(IMAGES["train"], IMAGES["valid"])} else ""
    return mean_and_deviation([result["scores"][metric] for result in results]) + star


def score(results: Sequence[Result], metric: str = "") -> str:
    """Return the score of a result by a metric, by default the metric of its data set."""
    if not results:
        return "-"
    metric, digits = (metric, 2) if metric else METRICS[results[0]["label"].split(".")[0]]
    return f"{results[0]['scores'][metric]:.{digits}f}"


def lowest(results: Sequence[Result]) -> str:
    """Return the perplexity, the lowest over the contexts."""
    found = [result["scores"]["perplexity"] for result in results if "perplexity" in result["scores"]]
    return f"{min(found):.2f}" if found else "-"


def speed(results: Sequence[Result]) -> str:
    """Return the tokens per second of a result."""
    return f"{results[0]['scores']['tokens_per_second']:,.0f}" if results else "-"


def updates(results: Sequence[Result]) -> str:
    """Return the updates of a result."""
    found = results[0]["settings"].get("max_update") if results else None
    return f"{found:,}" if found else "-"


def bleu(results: Sequence[Result], metric: str = "tokenized_bleu") -> str:
    """Return the mean over the seeds, and from two seeds on standard deviation and number."""
    by_seed = {result["seed"]: result["scores"][metric] for result in results if metric in result["scores"]}
    count = f" ({len(by_seed)})" if len(by_seed) > 1 else ""
    return mean_and_deviation(list(by_seed.values())) + count if by_seed else "-"


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


# Tables of papers.yaml.

TEXTS: Dict[str, Callable[..., str]] = {
    function.__name__: function
    for function in (nothing, parameters, accuracy, average, mean_of_arena, top1, score, lowest, speed, updates, bleu)
}
SPLITS = {function.__name__: function for function in (one_row, by_chunk, by_scaling, each, each_model)}
METRICS_OF_TEXTS = {"accuracy": "test_accuracy", "top1": "top1_accuracy"}


def column_of(
    title: str, text: str = "nothing", metric: str = "", source: Sequence[str] = (), **settings: Any
) -> Column:
    """Return a column by its entry in the file."""
    shown = None if text == PAPER else partial(TEXTS[text], metric=metric) if metric else TEXTS[text]
    return Column(title, shown, settings, metric or METRICS_OF_TEXTS.get(text, ""), tuple(source))


def summarised(model: str, rows: Mapping[str, Sequence[str]], columns: Sequence[Column]) -> Rule:
    """Return a rule for the results of a model's row in a summary, which other tables show in the named rows."""

    def shows(table: PaperTable, row: str, result: Result) -> bool:
        if not result["benchmark"].startswith(tuple(table.benchmarks)):
            return False
        if table.split is each_model:  # the row has all models
            return bool(result["label"].split(".")[:2] == [row.partition(",")[0], model.lower()])
        return bool(table.selected([result], row))

    def rule(result: Result) -> bool:
        pairs = zip(columns, rows[model])
        return any(shows(PAPER_TABLES[column.source[0]], row, result) for column, row in pairs)

    return rule


def table_of(about: Mapping[str, Any]) -> PaperTable:
    """Return a table by its entry in the file."""
    entry = {**about, "published": about["rows"], "find": lambda name: PAPER_TABLES[name]}
    del entry["rows"]
    columns = [column_of(title, **found) for title, found in about["columns"].items()]

    def rule(name: str, settings: Optional[Mapping[str, Any]]) -> Optional[Rule]:
        if settings is None:
            return None
        return summarised(name, about["rows"], columns) if columns[0].source else rule_of(settings)

    entry.update(columns=columns, trained={name: rule(name, found) for name, found in about["trained"].items()})
    split = about.get("split", "one_row")
    entry["split"] = SPLITS[split] if isinstance(split, str) else partial(by_checkpoint, titles=split)
    if "speed" in about:
        entry["speed"] = SpeedColumns(**about["speed"])
    return PaperTable(**entry)


PAPER_TABLES = {
    name: table_of(about)
    for name, about in yaml.load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"), LOADER).items()
}
TABLE1 = PAPER_TABLES.pop("table1")  # a summary of the others
