"""Result files: of each job, of the mean of a recipe's jobs, and those that belong to a table or figure."""

import shlex
import shutil
import statistics
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.recipes.recipe import Recipe
from fairseq_mega.lab.report.alike import CONDITIONS, DATA, EVALUATION, TRAINING, cell_of, source_of
from fairseq_mega.lab.runs.fingerprints import digest
from fairseq_mega.lab.runs.results import EXTRA, GIVEN, SET, make_result, read_result, write_result
from fairseq_mega.lab.runs.stages import print_line
from fairseq_mega.lab.runs.training_log import read_log

from .data import origin_of
from .jobs import Job, plan
from .rates import searches, tried
from .settings import Choices, changing

CHOSEN_BY = "best_valid_accuracy"
METRIC = "test_accuracy"


def record(job: Job) -> None:
    """Copy the results of a job to the folder of all results, with the conditions they were measured under."""
    for path in job.result_files:
        result = read_result(path)
        result["settings"] = {**result["settings"], **about(job)}
        result["seed"] = job.seed if job.weights is None else job.weights.seed
        result["settings"].setdefault("seed", result["seed"])
        result.update(time_of(job))
        write_result(job.choices.out / "results" / f"{job.recipe.report}.{path.name}", result)


def time_of(job: Job) -> Dict[str, float]:
    """Return the logged hours of a training, and those of a CPU's core, as entries for its result."""
    log = job.folder / "train.log"
    if not log.is_file():
        return {}
    read = read_log(log)
    found = {"training_hours": read.hours, "core_hours": read.core_hours}
    return {name: round(hours, 4) for name, hours in found.items() if hours is not None}


def about(job: Job) -> Dict[str, Any]:
    """Return the settings for a result file: the origin of the number, and the conditions for comparing it."""
    other, extra = job.choices.settings_of(job.recipe), changing(job.choices.extra)
    return {
        "recipe": job.recipe.name,
        "run": job.name,
        "precision": job.precision,
        "data": origin_of(job),
        DATA: job.settings["data"],
        TRAINING: job.training,
        EVALUATION: job.evaluation,
        "lr": job.rate,
        CONDITIONS: job.conditions,
        **job.recipe.cell,
        **({SET: other} if other else {}),
        **({EXTRA: shlex.join(extra)} if extra else {}),
        **({GIVEN: job.weights.record()} if job.weights is not None else {}),
    }


def write_cells(jobs: Sequence[Job], command: str) -> None:
    """Write the file of each recipe of classifiers with results.

    Earlier seeds of the file are counted, too, if their folders are still there.
    """
    for name in dict.fromkeys(job.recipe.name for job in jobs if job.recipe.evaluate["kind"] == "classifier"):
        own = [job for job in jobs if job.recipe.name == name]
        path = own[0].choices.out / "cells" / f"{name.replace('/', '.')}.{own[0].conditions}.json"
        seeds = {run["seed"] for run in read_result(path)["runs"]} if path.exists() else set()
        earlier = [
            plan(job.recipe, seed, job.data, job.settings["data"], job.choices)
            for job in {job.rate: job for job in own}.values()
            for seed in seeds - {job.seed for job in own}
        ]
        everything = [*own, *(job for job in earlier if job.result_files)]
        found = cell(sorted(everything, key=lambda job: (job.rate, job.seed)), command)
        if found is not None:
            write_result(path, found)


def cell(jobs: Sequence[Job], command: str) -> Optional[Dict[str, Any]]:
    """The result of all jobs of a recipe, each with its seed, learning rate, scores and curve; None without any.

    A learning rate is not chosen if it lacks the result of a seed that another one has.
    """
    done = [(job, read_result(path)) for job in jobs for path in job.result_files]
    if not done:
        return None
    rates: Dict[float, List[Dict[str, Any]]] = {}
    for job, result in done:
        rates.setdefault(job.rate, []).append(result)
    most = max(map(len, rates.values()))
    complete = {rate: found for rate, found in rates.items() if len(found) == most}
    rate = max(complete, key=lambda rate: mean_of(complete[rate], CHOSEN_BY))
    chosen, first = complete[rate], next(job for job, _ in done if job.rate == rate)
    values = [result["scores"][METRIC] for result in chosen]
    scores = {METRIC: statistics.mean(values), CHOSEN_BY: mean_of(chosen, CHOSEN_BY)}
    if len(values) > 1:
        scores["deviation"] = statistics.stdev(values)
    settings = {
        **{key: chosen[0]["settings"][key] for key in ("parameters", "updates", "batch", "train_examples")},
        **{key: value for key, value in about(first).items() if key != "run"},
        **{key: getattr(first.recipe, key) for key in ("report", "number", "paper")},
        "lr": rate,
    }
    short = searches(first.recipe, first.data, first.settings["data"], first.choices)
    if short:
        settings["rate_choice"] = {
            "updates": short[0].updates,
            "accuracies": {f"{rate:g}": accuracy for rate, accuracy in tried(short).items()},
            "core_hours": sum(time_of(job).get("core_hours", 0.0) for job in short),
        }
    return make_result(
        *("cell", first.recipe.name, scores, chosen[0]["examples"], command),
        settings=settings,
        missing=[job.name for job in jobs if not job.result_files],
        runs=[
            {
                "seed": job.seed,
                "lr": job.rate,
                **{key: result[key] for key in ("scores", "curve", "train_command", "date", "hardware")},
                **time_of(job),
            }
            for job, result in done
        ],
    )


def mean_of(results: Sequence[Dict[str, Any]], metric: str) -> float:
    """Mean of a score."""
    return statistics.mean(result["scores"][metric] for result in results)


def table_folder(jobs: Sequence[Job], choices: Choices) -> Path:
    """A folder of the results for the report of some runs, written again: theirs, and others that belong to them.

    Other results are of recipes of the same paper with the same kind of score, measured under the same conditions. Of
    results with other facts than the runs', or than a newer result's, none is copied, and all are named.
    """
    recipe = jobs[0].recipe
    folder = choices.out / "tables" / "-".join([recipe.report, digest([choices.conditions(recipe), choices.settings])])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    known = {**catalogue(), **{job.recipe.name: job.recipe for job in jobs}}
    of_cells = recipe.rates and recipe.evaluate["kind"] == "classifier"
    found: Dict[str, Tuple[Path, Dict[str, Any]]] = {}
    for path in sorted([*choices.out.glob("cells/*.json"), *choices.out.glob("results/*.json")]):
        result = read_result(path)
        settings, name = result["settings"], path.name.split(".", 1)[1]
        own = known.get(settings.get("recipe", ""))
        right_file = (path.parent.name == "cells") == bool(of_cells and GIVEN not in settings)
        if own is None or not right_file or not belongs(own, recipe):
            continue
        if settings.get(CONDITIONS) == digest(choices.conditions(own)):
            found.setdefault(name, (path, result))
    decided: Dict[Any, Any] = {}
    rates: Dict[Any, List[float]] = {}
    for job in jobs:
        decided.update(facts(about(job), job.recipe, job.seed if job.weights is None else job.weights.sha256))
        rates.setdefault(cell_of(job.recipe.cell), []).extend(job.recipe.rates or [job.rate])
    omitted = []
    for name, (path, result) in sorted(found.items(), key=lambda one: str(one[1][1].get("date")), reverse=True):
        settings = result["settings"]
        own, rate = known[settings["recipe"]], settings.get("lr")
        right = GIVEN in settings or rate in [None, *rates.setdefault(cell_of(own.cell), own.rates or [rate])]
        of_result = facts(settings, own, source_of(result))
        if right and all(decided.setdefault(key, value) == value for key, value in of_result.items()):
            shutil.copyfile(path, folder / name)
        else:
            omitted.append(name.removesuffix(".json"))
    if omitted:
        reason = "results on other data, of other trainings or evaluations, or of other runs with the same seed"
        print_line(f"{recipe.report}: omitted: {reason}: {', '.join(sorted(omitted))}")
    return folder


def facts(settings: Mapping[str, Any], recipe: Recipe, source: Any) -> Dict[Any, Any]:
    """Return the recorded facts of a result that have one value each in a table.

    They are the data of each place, the evaluation of each recipe, the recipe of each cell, its conditions and, for
    each learning rate, its training, and one run for each seed or given weights. Recipes of the package with the same
    cell are one training; a recipe in the user's file is another one.

    Args:
        source: of the result, see :func:`source_of`.
    """
    cell, rate = cell_of(recipe.cell), settings.get("lr")
    found = {
        ("cell", cell): (settings.get(CONDITIONS), "" if recipe.name in catalogue() else recipe.name),
        (DATA, recipe.place): settings.get(DATA),
        (EVALUATION, recipe.name): settings.get(EVALUATION),
        (TRAINING, cell, rate): settings.get(TRAINING) if GIVEN not in settings else None,
        ("run", cell, rate, source): settings.get("run"),
    }
    return {key: value for key, value in found.items() if value is not None}


def belongs(other: Recipe, recipe: Recipe) -> bool:
    """Return whether results of a recipe belong to the report of another: those of a paper's classifiers do."""
    papers = {one.name.partition("/")[0] for one in (other, recipe)}
    kinds = {one.evaluate["kind"] for one in (other, recipe)}
    return other.report == recipe.report or (len(papers) == 1 and kinds == {"classifier"})
