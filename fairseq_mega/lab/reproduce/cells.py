"""One file for each number that was measured: mean and deviation over the seeds, at the best of the learning rates."""

import statistics
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

from fairseq_mega.lab.runs.fingerprints import digest
from fairseq_mega.lab.runs.results import make_result, read_result, write_result

from .evaluating import results_of
from .recording import about, cells_folder
from .runs import Run
from .wishes import Wishes

CHOSEN_BY = "best_valid_accuracy"
METRIC = "test_accuracy"


def write_cells(runs: Sequence[Run], wishes: Wishes, command: str) -> List[Path]:
    """Write the file of each recipe of classifiers that has results; returns the files."""
    written = []
    recipes = {run.recipe.name: run.recipe for run in runs if run.recipe.evaluate["kind"] == "classifier"}
    for name, recipe in recipes.items():
        found = cell([run for run in runs if run.recipe.name == name], wishes, command)
        if found is not None:
            written.append(cells_folder(wishes) / f"{name.replace('/', '.')}.{digest(wishes.conditions(recipe))}.json")
            write_result(written[-1], found)
    return written


def cell(runs: Sequence[Run], wishes: Wishes, command: str) -> Optional[Dict[str, Any]]:
    """The result of all runs of a recipe, each with its seed, rate, scores and curve; None without any.

    A rate without the results of all seeds that another one has is not chosen.
    """
    done = [{**read_result(path), "run": run} for run in runs for path in results_of(run).glob("*.json")]
    if not done:
        return None
    rates: Dict[float, List[Dict[str, Any]]] = {}
    for result in done:
        rates.setdefault(result["run"].config["optimization"]["lr"][0], []).append(result)
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
        **{key: value for key, value in about(runs[0], wishes).items() if key != "run"},
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
                "lr": result["run"].config["optimization"]["lr"][0],
                **{key: result[key] for key in ("scores", "curve", "train_command", "date", "hardware")},
            }
            for result in done
        ],
    )


def mean_of(results: Sequence[Dict[str, Any]], metric: str) -> float:
    """Mean of a score."""
    return statistics.mean(result["scores"][metric] for result in results)
