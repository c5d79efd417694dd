"""The runner: all checks first, then the data, then every job on its GPUs, each stage once, then the tables."""

import argparse
import shlex
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Collection, ContextManager, Dict, List, Mapping, NamedTuple, Sequence, Tuple

import torch

from fairseq_mega.compat.files import locks
from fairseq_mega.lab.prepare.of_recipes import dataset_of
from fairseq_mega.lab.recipes.recipe import Recipe, RecipeError
from fairseq_mega.lab.runs.commands import Execute, StageError, execute
from fairseq_mega.lab.runs.files import in_the_way_of, write_json
from fairseq_mega.lab.runs.stages import print_line, stage

from . import checks, data
from .authors_data import fetch_processed
from .evaluating import evaluate
from .jobs import Job, plan
from .options import PROGRAM
from .results import record, write_cells
from .settings import Choices, at_each_rate, parse_setting
from .tables import print_tables
from .training import Devices, train, with_automatic
from .weights import convert, find_weights

FAILED = "failed.json"  # in a run's folder: the reason of its failure


class Made(NamedTuple):
    """Data that exist: their folder, and their digest."""

    folder: Path
    digest: str


def reproduce(recipes: Sequence[Recipe], choices: Choices, given: argparse.Namespace, command: Sequence[str]) -> int:
    """Check everything, prepare the data, do or launch the jobs, and print the tables; return the exit status.

    Args:
        given: the options.
        command: the words of the command line.

    Raises:
        RecipeError, ValueError, OSError, StageError: with messages for the user.
    """
    if choices.gpus == 0 and given.gpus is None and not given.smoke:
        raise RecipeError("no GPU is visible: give --gpus 0 to use the CPU, or --smoke for a quick test")
    if given.checkpoint is None:
        choices = with_automatic(choices, recipes, begun=True)
    for recipe in recipes:
        planned = plan(recipe, 1, Path(), "", choices)
        if choices.max_update or choices.settings_of(recipe) or choices.extra:
            checks.check_options(planned)
    fetch_processed(recipes, choices)
    if given.checkpoint is not None:
        choices = replace(choices, weights=find_weights(recipes, given.checkpoint, choices))
    elsewhere = given.launcher != "local"
    checks.check(recipes, choices, choices.gpus if elsewhere or choices.gpus == 0 else torch.cuda.device_count())
    jobs = same_work(jobs_of(recipes, given.seeds, choices, prepare_all(recipes, choices)))
    if given.launcher == "print":
        print_commands(jobs, command, given.recipes)
        return 0
    line = shlex.join([PROGRAM, *command])
    failed = perform_all(jobs, choices, line, only_train=given.only_train)
    status = 1 if failed else 0
    if not given.only_train:
        if not choices.weights:
            write_cells(jobs, line)
        status = max(status, print_tables(jobs, failed, given, choices))
    if failed:
        print(f"{PROGRAM}: error: {len(failed)} of {len(jobs)} runs failed: {', '.join(failed)}", file=sys.stderr)
    return status


def prepare_all(recipes: Sequence[Recipe], choices: Choices) -> Dict[str, Made]:
    """Make the data of recipes that are not there; return those of all by :attr:`Recipe.place`.

    Raises:
        StageError: if a command fails.
    """
    needed = data.by_place(recipes)
    return {
        place: Made(folder, prepare(needed[place], folder, choices))
        for place, folder in data.folders(recipes, choices).items()
    }


def prepare(recipe: Recipe, folder: Path, choices: Choices, run_command: Execute = execute) -> str:
    """Make the data of a recipe unless they are there; return their digest.

    Raises:
        StageError: if a command fails.
    """
    dataset = dataset_of(recipe)
    if choices.processed is not None:  # the folder may be read-only
        return data.digest_of(recipe, folder, choices)
    with made_by_one(folder):
        if not dataset.layout.is_there(folder):
            print_line(f"{folder} holds no data: making those of {dataset.name}")
            run_command(data.command(recipe, folder, choices), folder.parent / f".{folder.name}" / "prepare.log", {})
        found = dataset.layout.examine(folder)
        for remark in () if choices.smoke else dataset.remarks(folder, found.examples):
            print_line(remark)
        return found.digest


def made_by_one(folder: Path) -> ContextManager[None]:
    """Lock a data folder against other runners; without permission to write no lock is needed."""
    if in_the_way_of(folder.parent) is not None:
        return nullcontext()
    return locks.held(folder.parent / f".{folder.name}.lock", str(folder), "runner")


def jobs_of(recipes: Sequence[Recipe], seeds: Sequence[int], choices: Choices, made: Mapping[str, Made]) -> List[Job]:
    """Return a job for each recipe, learning rate and seed, or one for given weights.

    Args:
        seeds: empty for the recipes' own.
        made: their data by :attr:`Recipe.place`.
    """

    def planned(recipe: Recipe, seed: int) -> Job:
        if recipe.measured:  # on no data
            return plan(recipe, seed, Path(), "", choices)
        folder, digest = made[recipe.place]
        return plan(data.fit(recipe, folder), seed, data.read_by_fairseq(recipe, folder), digest, choices)

    return [
        planned(variant, seed)
        for recipe in recipes
        for variant in ([recipe] if recipe.name in choices.weights else at_each_rate(recipe))
        for seed in ([0] if recipe.name in choices.weights else seeds or recipe.seeds)
    ]


def jobs_there(recipes: Sequence[Recipe], seeds: Sequence[int], choices: Choices) -> Dict[str, List[Job]]:
    """Return the jobs of each recipe whose data are there, by its name; nothing is made."""
    needed = data.by_place(recipes)
    made = {
        place: Made(folder, data.digest_of(needed[place], folder, choices))
        for place, folder in data.folders(recipes, choices).items()
        if choices.processed is not None or dataset_of(needed[place]).layout.is_there(folder)
    }
    there = [recipe for recipe in recipes if recipe.measured or recipe.place in made]
    choices = with_automatic(choices, there, begun=False)
    return {recipe.name: jobs_of([recipe], seeds, choices, made) for recipe in there}


def perform(job: Job, run_command: Execute, devices: List[int], command: str, only_train: bool) -> None:
    """Train, or convert the weights of --checkpoint, evaluate and record a job, as far as that has not been done."""
    folder = job.folder
    with locks.held(folder / "job.lock", str(folder), "runner"):
        if job.weights is not None:
            stage(folder, "convert", lambda: convert(job), f"{job.name}.convert")
        elif not job.recipe.measured:
            stage(folder, "train", lambda: train(job, run_command, devices), f"{job.name}.train")
        if only_train:
            return
        title = f"{job.name}.evaluate"
        stage(folder, job.evaluation_stage, lambda: evaluate(job, run_command, devices, command), title)
        record(job)
        (folder / FAILED).unlink(missing_ok=True)


def perform_all(
    jobs: Sequence[Job], choices: Choices, command: str, run_command: Execute = execute, only_train: bool = False
) -> List[str]:
    """Do all jobs, as many at a time as there are GPUs for; return the names of those that failed.

    A failure is written to the job's folder, and a later success removes it.
    """
    devices, failed = Devices(choices.gpus), set()

    def one(job: Job) -> None:
        with devices.lent(job.gpus) as lent:
            try:
                perform(job, run_command, lent, command, only_train)
            except (StageError, OSError, ValueError) as error:
                print_line(f"{job.name}: failed: {error}")
                about = {"recipe": job.recipe.name, "seed": job.seed, "error": str(error), "smoke": job.smoke}
                write_json(job.folder / FAILED, about)
                failed.add(job.name)

    with ThreadPoolExecutor(max(1, choices.gpus)) as pool:
        list(pool.map(one, jobs))
    return [job.name for job in jobs if job.name in failed]


def same_work(jobs: Sequence[Job]) -> List[Job]:
    """Return each training with its evaluations once: a number in two tables is one job."""
    found: Dict[Tuple[str, str], Job] = {}
    for job in jobs:
        found.setdefault((job.name, job.recipe.report), job)
    return list(found.values())


def print_commands(jobs: Sequence[Job], given: Sequence[str], recipes: Sequence[str]) -> None:
    """Print for each run the command that trains it alone and writes its results.

    Args:
        given: the words of the command line.
        recipes: those of them that name recipes.
    """
    end = given.index("--") if "--" in given else len(given)
    for job in jobs:
        name = job.recipe.file
        words = [word for word in without_options(given[:end], ("--launcher", "--seeds"), job) if word not in recipes]
        print(f"# {name}, seed {job.seed}: {job.gpus or 'no'} GPU(s), results in {job.choices.out}")
        print(shlex.join([PROGRAM, *words, name, "--seeds", str(job.seed), *given[end:]]))


def without_options(words: Sequence[str], options: Collection[str], job: Job) -> List[str]:
    """Return a command line without some options and their values, and without settings of other recipes alone."""

    def is_omitted(option: str, value: str) -> bool:
        return option in options or (option == "--set" and not parse_setting(value).changes(job.recipe))

    found: List[str] = []
    for word in words:
        option, joined, value = word.partition("=")
        if found and is_omitted(found[-1], word):
            found.pop()
        elif not joined or not is_omitted(option, value):
            found.append(word)
    return found
