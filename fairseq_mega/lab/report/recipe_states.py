"""State of every recipe: the paper's value, ours over the seeds, failed seeds, and the origin of our values."""

import argparse
import json
import re
from itertools import groupby
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Sequence, Set, Tuple

from fairseq_mega.lab.evaluate.lra_runs import TASKS, shortened, stuck
from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.recipes.recipe import Recipe
from fairseq_mega.lab.report.alike import CONDITIONS, MORE, PRECISIONS
from fairseq_mega.lab.report.figures import speeds_of
from fairseq_mega.lab.report.numbers import mean_and_deviation
from fairseq_mega.lab.runs.provenance import machine_of, revision_of
from fairseq_mega.lab.runs.report import Report, add_format
from fairseq_mega.lab.runs.results import GIVEN, Result, ResultError, changes_of, check_result, is_trained_here
from fairseq_mega.lab.runs.text_tables import FORMATS, Table, table_of

COPIES = {"runs", "tables"}  # folders of the runner whose files repeat its results
SEED = re.compile(r"\.seed(\d+)\.")  # in the name of a run
SPEED = "tokens_per_second"  # depends on the machine
METRICS = ("test_accuracy", "perplexity")  # of recipes without a value of the paper
VALID = "valid_bits_per_token"  # score at the end of a training whose losses form a curve
FAILED = "failed.json"  # in a run's folder: the reason of its failure


class State(NamedTuple):
    """A recipe, its results, the seeds whose runs failed or never rose above chance, and results of weights trained
    elsewhere.

    ``omitted`` counts the trainings with other settings than the common settings of ``results``.
    """

    recipe: Recipe
    results: List[Result]
    failed: Set[int]
    given: List[Result]
    omitted: int = 0


def records(
    folders: Iterable[Path], names: str, fields: Set[str], omitted: Set[str]
) -> Iterator[Tuple[Path, Dict[str, Any]]]:
    """Yield the JSON objects about recipes with certain fields, in and below some folders except the omitted ones.

    Raises:
        ResultError: if a file names a recipe and is not JSON.
    """
    for folder in folders:
        for path in sorted(folder.rglob(names)):
            content = path.read_bytes()
            if b'"recipe"' not in content:
                continue
            try:
                found = json.loads(content)
            except ValueError as error:
                raise ResultError(
                    f"{path}: not a JSON result file ({error}): write it again, or move it away"
                ) from error
            if isinstance(found, dict) and found.keys() >= fields and not omitted & {*path.relative_to(folder).parts}:
                yield path, found


def find_results(folders: Iterable[Path]) -> List[Result]:
    """Return the results of recipes in and below some folders, each once, without toy data and other settings.

    The results of a recipe with several learning rates are in the files of its cells, which record the chosen one.

    Raises:
        ResultError: if a result is damaged.
    """
    found: Dict[str, Result] = {}
    for path, result in records(folders, "*.json", {"schema", "settings"}, COPIES):
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
    chosen = [run for run in result.get("runs", ()) if run["lr"] == settings["lr"]]
    return [{**result, **run, "settings": settings} for run in chosen] if "runs" in result else [result]


def find_failures(folders: Iterable[Path]) -> Dict[str, Set[int]]:
    """Return the failed seeds of each recipe, from the runner's records."""
    found: Dict[str, Set[int]] = {}
    for _, failure in records(folders, FAILED, {"recipe", "seed", "smoke"}, set()):
        if not failure["smoke"]:
            found.setdefault(failure["recipe"], set()).add(failure["seed"])
    return found


def states(folders: Sequence[Path]) -> List[State]:
    """Return the states of all recipes, in the order of the tables."""
    results, failures = find_results(folders), find_failures(folders)
    found = []
    for name, recipe in catalogue().items():
        of_recipe = [result for result in results if result["settings"]["recipe"] == name]
        trained = list(filter(is_trained_here, of_recipe))
        own = of_most(trained)
        failed = set(failures.get(name, ()))
        failed |= {result["seed"] for result in own if result["settings"].get("task") in TASKS and stuck(result)}
        failed |= {int(seed) for result in own for run in result.get("missing", ()) for seed in SEED.findall(run)}
        given = [result for result in of_recipe if not is_trained_here(result)]
        found.append(State(recipe, own, failed, given, len(trained) - len(own)))
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
    if not cells:
        return state.recipe.absent or "not run"
    short = any("published_updates" in result["settings"] and shortened(result) for result in state.results)
    return " / ".join(cells) + "*" * short


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
    return several(found)


def seeds_of(state: State) -> str:
    """Count the recipe's seeds with a result, and the omitted results of other settings."""
    seeds = f"{len({result['seed'] for result in state.results})} of {len(state.recipe.seeds)}"
    return seeds + (f", {state.omitted} more results omitted" if state.omitted else "")


def above_chance_of(members: Sequence[State]) -> str:
    """Count the trainings of some recipes of the arena that rose above chance, among those with a result."""
    results = [result for state in members for result in state.results if result["settings"].get("task") in TASKS]
    return f"{sum(not stuck(result) for result in results)} of {len(results)}" if results else "-"


def several(texts: Iterable[str]) -> str:
    """Return different texts, each once."""
    return ", ".join(dict.fromkeys(texts)) or "-"


def state_table(found: Sequence[State]) -> Table:
    """Return a table with a row for each recipe."""
    rows = []
    for state in found:
        failed = ", ".join(map(str, sorted(state.failed))) or ("none" if state.results else "-")
        rows.append(
            {
                "recipe": state.recipe.name,
                "paper": paper_of(state.recipe),
                "ours": ours_of(state),
                "others' weights": scored_of(state),
                "seeds": seeds_of(state),
                "failed seeds": failed,
                "above chance": above_chance_of([state]),
                "machine": several(map(machine_of, state.results)),
                "revision": several(map(revision_of, state.results)),
                "date": several(result["date"][:10] for result in state.results),
                "data": several(str(result["settings"].get("data", "-")) for result in state.results),
            }
        )
    return table_of(rows)


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


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``recipes``."""
    about = "folders with results, for instance examples or outputs/lra"
    parser.add_argument("folders", type=Path, nargs="+", help=about)
    add_format(parser)


def run(options: argparse.Namespace) -> None:
    """Print the state of all recipes.

    Raises:
        FileNotFoundError: if a folder does not exist.
    """
    for folder in options.folders:
        if not folder.is_dir():
            raise FileNotFoundError(f"the folder {folder} does not exist: give one that contains results")
    print(FORMATS[options.format](state_table(states(options.folders))))


REPORT = Report("Print every recipe with the paper's value and ours, failed seeds, machine and data.", add_options, run)
