"""Result files of all runs in one folder, and those of them that belong to a table or figure."""

import shlex
import shutil
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence, Set, Tuple

from fairseq_mega.lab.prepare.progress import say
from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.recipes.recipe import Recipe
from fairseq_mega.lab.report.alike import CONDITIONS, DATA, EVALUATION, TRAINING, cell_of, source_of
from fairseq_mega.lab.runs.fingerprints import digest
from fairseq_mega.lab.runs.results import EXTRA, GIVEN, SET, read_result, write_result
from fairseq_mega.lab.runs.training_log import training_hours

from .behind import changing
from .choices import Choices
from .evaluating import result_files
from .origins import data_of
from .runs import Run


def record(run: Run, choices: Choices) -> List[Path]:
    """Copy the results of a run to the folder of all results, with the conditions they were measured under.

    Returns the files, which appear whole or not at all.
    """
    written = []
    for path in result_files(run):
        result = read_result(path)
        result["settings"] = {**result["settings"], **about(run, choices)}
        result.update(time_of(run))
        weights = choices.weights.get(run.recipe.name)
        seed = run.seed if weights is None else weights.seed
        result["settings"].setdefault("seed", seed)
        target = results_folder(choices) / f"{run.recipe.report}.{path.name}"
        write_result(target, {**result, "seed": seed})
        written.append(target)
    return written


def time_of(run: Run) -> Dict[str, float]:
    """Return the hours of a training as an entry for its result; nothing where there was none."""
    log = run.folder / "train.log"
    if not log.is_file():
        return {}
    with log.open(encoding="utf-8", errors="replace") as lines:
        hours = training_hours(lines)
    return {} if hours is None else {"training_hours": round(hours, 4)}


def about(run: Run, choices: Choices) -> Dict[str, Any]:
    """Return the settings for a result file: the origin of the number, and the conditions for comparing it."""
    other, weights = choices.settings_of(run.recipe), choices.weights.get(run.recipe.name)
    extra = changing(choices.extra)
    return {
        "recipe": run.recipe.name,
        "run": run.name,
        "precision": choices.used_precision,
        "data": data_of(run, choices),
        DATA: run.settings["data"],
        TRAINING: training_digest(run),
        EVALUATION: run.evaluation,
        "lr": run.config["optimization"]["lr"][0],
        CONDITIONS: digest(choices.conditions(run.recipe)),
        **run.recipe.cell,
        **({SET: other} if other else {}),
        **({EXTRA: shlex.join(extra)} if extra else {}),
        **({GIVEN: weights.told()} if weights is not None else {}),
    }


def training_digest(run: Run) -> str:
    """Return the digest of all that the weights of a run depend on, but for its seed and data."""
    settings = {name: value for name, value in run.settings.items() if name not in ("seed", "data", "extra")}
    return digest([settings, changing(run.extra)])


def results_folder(choices: Choices) -> Path:
    """All result files of a folder of runs."""
    return choices.results or choices.out / "results"


def cells_folder(choices: Choices) -> Path:
    """The files of :mod:`fairseq_mega.lab.reproduce.aggregate`."""
    return choices.out / "cells"


def table_folder(runs: Sequence[Run], choices: Choices) -> Path:
    """A folder of the results for the report of some runs, made anew: theirs, and others that belong to them.

    Other results are of recipes of the same paper with the same kind of score, measured under the same conditions. If
    settings of the command change only some recipes of a cell of the table, the cell has the runs' own results alone.
    Recipes of the package with the same cell are one training; a recipe in the user's file is another one.
    Results on other data, of another training of the same cell, such as that of a recipe before a change, of another
    evaluation of the same recipe, and of other runs of the same recipe, rate and seed, are left out and named.
    """
    recipe = runs[0].recipe
    folder = choices.out / "tables" / "-".join([recipe.report, digest([choices.conditions(recipe), choices.settings])])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    known = {**catalogue(), **{run.recipe.name: run.recipe for run in runs}}
    of_cell = {cell_of(run.recipe.cell): training_of(run.recipe, choices) for run in runs}
    seen: Dict[str, Path] = {}
    of_cells = recipe.rates and recipe.evaluate["kind"] == "classifier"
    for path in sorted([*cells_folder(choices).glob("*.json"), *results_folder(choices).glob("*.json")]):
        settings = read_result(path)["settings"]
        if (path.parent == cells_folder(choices)) != bool(of_cells and GIVEN not in settings):
            continue
        own = known.get(settings.get("recipe", ""))
        name = path.name.split(".", 1)[1]
        if own is None or name in seen or not belongs(own, recipe):
            continue
        training = training_of(own, choices)
        if settings.get(CONDITIONS) == training[0] and training == of_cell.setdefault(cell_of(own.cell), training):
            seen[name] = path
    kept = of_one_kind(seen, runs, known)
    for name in kept:
        shutil.copyfile(seen[name], folder / name)
    others = sorted(seen.keys() - kept)
    if others:
        told = "results on other data, of other trainings or evaluations, or of other runs with the same seed"
        say(f"{recipe.report}: left out: {told}: {', '.join(name.removesuffix('.json') for name in others)}")
    return folder


def training_of(recipe: Recipe, choices: Choices) -> Tuple[str, str]:
    """Return the digest of the conditions of a recipe, and its name if the package does not have it."""
    return digest(choices.conditions(recipe)), "" if recipe.name in catalogue() else recipe.name


def of_one_kind(files: Mapping[str, Path], runs: Sequence[Run], recipes: Mapping[str, Recipe]) -> List[str]:
    """Return the names of results on the data of some runs.

    They are of one training for each cell and rate, of the rates of their recipe, of one evaluation for each recipe,
    and of one run for each cell, rate and seed or given weights.

    Args:
        files: results by their names; the last ones win where none of the runs decides.
        recipes: of the results, by their names.
    """
    data = {run.recipe.place: run.settings["data"] for run in runs}
    trainings: Dict[Tuple[Any, ...], str] = {}
    rates: Dict[Tuple[Any, ...], Set[Any]] = {}
    evaluations = {run.recipe.name: run.evaluation for run in runs}
    chosen: Dict[Tuple[Any, ...], str] = {}
    for run in runs:
        rate = run.config["optimization"]["lr"][0]
        rates.setdefault(cell_of(run.recipe.cell), set()).update(run.recipe.rates or [rate])
        cell = cell_of(run.recipe.cell), rate
        trainings[cell] = training_digest(run)
        chosen[cell, run.settings.get(GIVEN, run.seed)] = run.name
    kept, results = [], {name: read_result(path) for name, path in files.items()}
    for name, result in sorted(results.items(), key=lambda pair: str(pair[1].get("date")), reverse=True):
        settings = result["settings"]
        recipe, rate, trained = recipes[settings["recipe"]], settings.get("lr"), GIVEN not in settings
        cell = cell_of(recipe.cell), rate
        if DATA in settings and data.setdefault(recipe.place, settings[DATA]) != settings[DATA]:
            continue
        if EVALUATION in settings and evaluations.setdefault(recipe.name, settings[EVALUATION]) != settings[EVALUATION]:
            continue
        if trained and "lr" in settings and rate not in rates.setdefault(cell[0], set(recipe.rates or [rate])):
            continue
        if trained and TRAINING in settings and trainings.setdefault(cell, settings[TRAINING]) != settings[TRAINING]:
            continue
        if "run" in settings and chosen.setdefault((cell, source_of(result)), settings["run"]) != settings["run"]:
            continue
        kept.append(name)
    return sorted(kept)


def belongs(other: Recipe, recipe: Recipe) -> bool:
    """Return whether results of a recipe belong to the report of another: those of a paper's classifiers do."""
    papers = {one.name.partition("/")[0] for one in (other, recipe)}
    kinds = {one.evaluate["kind"] for one in (other, recipe)}
    return other.report == recipe.report or (len(papers) == 1 and kinds == {"classifier"})
