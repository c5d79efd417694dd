"""One file for each number that was measured: mean and deviation over the seeds, at the best of the learning rates."""

import statistics
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

from fairseq_mega.lab.runs.fingerprints import digest
from fairseq_mega.lab.runs.results import make_result, read_result, write_result

from .choices import Choices
from .evaluating import result_files
from .recording import about, cells_folder, time_of
from .runs import Run, plan

CHOSEN_BY = "best_valid_accuracy"
METRIC = "test_accuracy"


def write_cells(runs: Sequence[Run], choices: Choices, command: str) -> List[Path]:
    """Write the file of each recipe of classifiers with results; return the files.

    Earlier seeds of the file are counted, too, if their runs are still there.
    """
    written = []
    recipes = {run.recipe.name: run.recipe for run in runs if run.recipe.evaluate["kind"] == "classifier"}
    for name, recipe in recipes.items():
        path = cells_folder(choices) / f"{name.replace('/', '.')}.{digest(choices.conditions(recipe))}.json"
        own = [run for run in runs if run.recipe.name == name]
        everything = sorted([*own, *earlier_runs(path, own, choices)], key=lambda run: (rate_of(run), run.seed))
        found = cell(everything, choices, command)
        if found is not None:
            written.append(path)
            write_result(path, found)
    return written


def earlier_runs(path: Path, runs: Sequence[Run], choices: Choices) -> List[Run]:
    """Return the finished runs of other seeds that are in the file of a cell."""
    seeds = {run["seed"] for run in read_result(path)["runs"]} if path.exists() else set()
    variants = {rate_of(run): run for run in runs}
    planned = [
        plan(run.recipe, seed, run.data, run.settings["data"], choices)
        for run in variants.values()
        for seed in sorted(seeds - {run.seed for run in runs})
    ]
    return [run for run in planned if result_files(run)]


def rate_of(run: Run) -> float:
    """Return the peak learning rate of a run."""
    return float(run.config["optimization"]["lr"][0])


def cell(runs: Sequence[Run], choices: Choices, command: str) -> Optional[Dict[str, Any]]:
    """The result of all runs of a recipe, each with its seed, rate, scores and curve; None without any.

    A rate is not chosen if it lacks the result of a seed that another rate has.
    """
    done = [{**read_result(path), "run": run} for run in runs for path in result_files(run)]
    if not done:
        return None
    rates: Dict[float, List[Dict[str, Any]]] = {}
    for result in done:
        rates.setdefault(rate_of(result["run"]), []).append(result)
    most = max(map(len, rates.values()))
    complete = {rate: found for rate, found in rates.items() if len(found) == most}
    rate = max(complete, key=lambda rate: mean_of(complete[rate], CHOSEN_BY))
    chosen, recipe = complete[rate], runs[0].recipe
    values = [result["scores"][METRIC] for result in chosen]
    scores = {METRIC: statistics.mean(values), CHOSEN_BY: mean_of(chosen, CHOSEN_BY)}
    if len(values) > 1:
        scores["deviation"] = statistics.stdev(values)
    settings = {
        **{key: chosen[0]["settings"][key] for key in ("parameters", "updates", "batch", "train_examples")},
        **{key: value for key, value in about(chosen[0]["run"], choices).items() if key != "run"},
        "report": recipe.report,
        "number": recipe.number,
        "paper": recipe.paper,
        "lr": rate,
    }
    return make_result(
        *("cell", recipe.name, scores, chosen[0]["examples"], command),
        settings=settings,
        missing=[run.name for run in runs if all(result["run"] is not run for result in done)],
        runs=[
            {
                "seed": result["run"].seed,
                "lr": rate_of(result["run"]),
                **{key: result[key] for key in ("scores", "curve", "train_command", "date", "hardware")},
                **time_of(result["run"]),
            }
            for result in done
        ],
    )


def mean_of(results: Sequence[Dict[str, Any]], metric: str) -> float:
    """Mean of a score."""
    return statistics.mean(result["scores"][metric] for result in results)
