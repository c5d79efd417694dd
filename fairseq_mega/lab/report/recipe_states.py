"""State of every recipe: the paper's value, and ours over the seeds."""

import json
from itertools import groupby
from pathlib import Path
from typing import Any, Dict, Iterable, List, NamedTuple, Sequence, Tuple

from fairseq_mega.lab.evaluate.lra_runs import TASKS, shortened, stuck
from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.recipes.recipe import Recipe
from fairseq_mega.lab.report.alike import CONDITIONS, MORE, PRECISIONS
from fairseq_mega.lab.report.figures import speeds_of
from fairseq_mega.lab.report.numbers import mean_and_deviation
from fairseq_mega.lab.runs.results import (
    GIVEN,
    Result,
    ResultError,
    changes_of,
    check_result,
    chosen_runs,
    is_trained_here,
)
from fairseq_mega.lab.runs.text_tables import Table, table_of

COPIES = {"runs", "tables"}  # folders of the runner whose files repeat its results
SPEED = "tokens_per_second"  # depends on the machine
METRICS = ("test_accuracy", "perplexity")  # of recipes without a value of the paper
VALID = "valid_bits_per_token"  # score at the end of a training whose losses form a curve


class State(NamedTuple):
    """A recipe, its results, and results of weights trained elsewhere."""

    recipe: Recipe
    results: List[Result]
    given: List[Result]


def find_results(folders: Iterable[Path]) -> List[Result]:
    """Return the results of recipes in and below some folders, each once, without toy data and other settings.

    The results of a recipe with several learning rates are in the files of its cells, which record the chosen one.
    Files about no recipe and the runner's copies are passed over.

    Raises:
        ResultError: if a result is damaged, or a file names a recipe and is not JSON.
    """
    found: Dict[str, Result] = {}
    for folder, path in ((place, path) for place in folders for path in sorted(place.rglob("*.json"))):
        content = path.read_bytes()
        if b'"recipe"' not in content or COPIES & {*path.relative_to(folder).parts}:
            continue
        try:
            result = json.loads(content)
        except ValueError as error:
            raise ResultError(f"{path}: not a JSON result file ({error}): write it again, or move it away") from error
        if not isinstance(result, dict) or not result.keys() >= {"schema", "settings"}:
            continue
        check_result(result, str(path))
        recipe = catalogue().get(result["settings"].get("recipe"))
        invented = result["benchmark"].endswith("-smoke") or result["settings"].get("data") == "invented"
        if recipe is None or invented or changes_of(result):
            continue
        if recipe.rates and "runs" not in result and is_trained_here(result):
            continue
        for one in of_each_seed(result, recipe):
            found.setdefault(json.dumps([recipe.name, one["seed"], one["scores"]], sort_keys=True), one)
    return list(found.values())


def of_each_seed(result: Result, recipe: Recipe) -> List[Result]:
    """Return the results in a file: one result, or the results of a cell's seeds at the chosen learning rate."""
    settings = {"published_updates": recipe.updates, **result["settings"]}
    return [{**result, **run, "settings": settings} for run in chosen_runs(result)] if "runs" in result else [result]


def states(folders: Sequence[Path]) -> List[State]:
    """Return the states of all recipes, in the order of the tables."""
    results, found = find_results(folders), []
    for name, recipe in catalogue().items():
        own = [result for result in results if result["settings"]["recipe"] == name]
        trained = list(filter(is_trained_here, own))
        found.append(State(recipe, of_most(trained), [result for result in own if result not in trained]))
    return found


def of_most(results: Sequence[Result]) -> List[Result]:
    """Return the results with the settings of most seeds; for equally many seeds, of more updates, then of higher
    precision.

    Results of different settings are not mixed. They are ordered by date, so that the newest result of a seed counts.
    """
    groups: Dict[Tuple[str, Any, int], List[Result]] = {}
    for result in sorted(results, key=lambda result: str(result["date"])):
        settings = result["settings"]
        kind = (settings.get("precision", "fp32"), settings.get(CONDITIONS), settings.get("updates", 0))
        groups.setdefault(kind, []).append(result)

    def rank(kind: Tuple[str, Any, int]) -> Tuple[int, int, int]:
        return len({result["seed"] for result in groups[kind]}), kind[2], -PRECISIONS.index(kind[0])

    return groups[max(groups, key=rank)] if groups else []


def paper_of(recipe: Recipe) -> str:
    """Return the paper's scores, empty for a plot, with the source if it is another paper."""
    scores = [f"{value:.2f}" for metric, value in recipe.paper.items() if metric != SPEED]
    source = f", {recipe.values_from}" if recipe.values_from else ""
    return " / ".join(scores) + source if scores else ("plot" if "figure" in recipe.report else "-")


def ours_of(state: State) -> str:
    """Return mean and deviation over the seeds of every metric, with a star for trainings shorter than the paper's."""
    cells = []
    if state.recipe.measured and state.results:
        points = speeds_of(state.results[-1])
        return ", ".join(f"{one['tokens_per_second']:,.0f} tokens/s at {length:,}" for length, one in points.items())
    if state.recipe.evaluate.get("curve") and state.results:  # each context has a score
        ends = {result["seed"]: result["scores"][VALID] for result in state.results if VALID in result["scores"]}
        return f"{mean_and_deviation(list(ends.values()), 4)} bits per byte" if ends else "-"
    for metric in state.recipe.paper or METRICS:
        kinds: Dict[str, Dict[Any, float]] = {}
        for result in state.results:
            if metric in result["scores"]:
                kinds.setdefault(kind_of(result), {})[result["seed"]] = result["scores"][metric]
        means = [
            mean_and_deviation(list(seeds.values())) + f" ({kind})" * (len(kinds) > 1) for kind, seeds in kinds.items()
        ]
        cells += [", ".join(means)] if means and metric != SPEED else []
    short = any("published_updates" in result["settings"] and shortened(result) for result in state.results)
    return " / ".join(cells) + "*" * short if cells else "-"


def kind_of(result: Result) -> str:
    """Return the difference between results of one training: the checkpoint, or the reading of the text."""
    settings = result["settings"]
    return ", ".join(f"{name} {settings[name]}".replace("_", " ") for name in MORE if name in settings)


def scored_of(state: State) -> str:
    """Return scores of weights that were trained elsewhere, with their owner and what differs from the recipe."""
    found = []
    for result in state.given:
        about = result["settings"][GIVEN]
        whose = "; ".join(["authors'" if about["authors"] else "given", *about.get("differs", ())])
        metrics = [metric for metric in state.recipe.paper or METRICS if metric in result["scores"]]
        found += [f"{result['scores'][metric]:.2f} ({whose})" for metric in metrics]
    return ", ".join(dict.fromkeys(found))


def above_chance_of(members: Sequence[State]) -> str:
    """Count the trainings of some recipes of the arena that rose above chance, among those with a result."""
    results = [result for state in members for result in state.results if result["settings"].get("task") in TASKS]
    return f"{sum(not stuck(result) for result in results)} of {len(results)}" if results else "-"


def benchmark_table(found: Sequence[State]) -> Table:
    """Return a table with a row for each task of a table or figure, whose recipes share a folder."""
    rows = []
    for folder, group in groupby(found, lambda state: state.recipe.name.rpartition("/")[0]):
        members = list(group)
        measured = [state for state in members if state.results]
        ours = []
        for state in members:
            others = [f"others' weights {scored_of(state)}"] if state.given else []
            numbers = [*([ours_of(state)] if state.results else []), *others]
            ours += [f"{names_of(state)[1]} {'; '.join(numbers)}"] if numbers else []
        done = sum(len({result["seed"] for result in state.results}) >= len(state.recipe.seeds) for state in members)
        absent = members[0].recipe.absent or "not run yet"
        papers = [f"{names_of(state)[1]} {paper_of(state.recipe)}" for state in members if state.recipe.paper]
        rows.append(
            {
                "benchmark": names_of(members[0])[0],
                "recipes": f"`{folder}`: {len(members)}",
                "paper": "; ".join(papers) or paper_of(members[0].recipe),
                "ours": "; ".join(ours) or "-",
                "above chance": above_chance_of(members),
                "state": f"{len(measured)} of {len(members)} begun, {done} done" if measured else absent,
            }
        )
    return table_of(rows)


def names_of(state: State) -> Tuple[str, str]:
    """Return the table and task of a recipe, and its name among its neighbours."""
    words = state.recipe.number.split(", ")
    if words[0] == "MEGALODON":
        words[:2] = [" ".join(words[:2])]
    table, task, *rest = words[1:] if words[0] == "MEGA" else words
    if state.recipe.report.startswith("figure"):
        table = " ".join(table.split()[:2])  # its panels share their recipes
    return f"{table}, {task}", ", ".join(rest).partition(" (")[0]
