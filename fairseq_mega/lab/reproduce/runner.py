"""The runner: all checks first, then the data, then every job on its GPUs, each stage once, then the tables."""

import argparse
import shlex
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, Mapping, Sequence, Tuple

import torch

from fairseq_mega.compat.files import locks
from fairseq_mega.lab.recipes.recipe import Recipe, RecipeError
from fairseq_mega.lab.runs.commands import Execute, StageError, execute
from fairseq_mega.lab.runs.files import write_json
from fairseq_mega.lab.runs.stages import print_line, stage

from .data import Data, data_of
from .evaluating import evaluate
from .jobs import Job, plan
from .options import PROGRAM
from .rates import chosen, searches
from .results import record, write_cells
from .settings import Choices, check_settings
from .tables import print_tables
from .training import Devices, train, with_automatic
from .weights import convert, find_weights

FAILED = "failed.json"  # in a run's folder: the reason of its failure


def reproduce(recipes: Sequence[Recipe], choices: Choices, given: argparse.Namespace, command: Sequence[str]) -> int:
    """Check everything, prepare the data, do the jobs, and print the tables; return the exit status.

    Args:
        given: the options.
        command: the words of the command line.

    Raises:
        RecipeError, ValueError, OSError, StageError: with messages for the user.
    """
    if choices.gpus == 0 and given.gpus is None and not given.smoke:
        raise RecipeError("no GPU is visible: give --gpus 0 to use the CPU, or --smoke for a quick test")
    if given.checkpoint is not None and choices.precision in ("bf16", "fp16"):
        raise RecipeError(f"--precision {choices.precision} has no effect beside --checkpoint: omit it")
    for recipe in recipes:
        check_settings(recipe, choices)
    if given.checkpoint is None:
        choices = with_automatic(choices, recipes, begun=True)
    else:
        choices = replace(choices, weights=find_weights(recipes, given.checkpoint, choices))
    data = data_of(recipes, choices)
    check(data.values(), choices)
    for one in data.values():
        one.make()
    line = shlex.join([PROGRAM, *command])
    if perform_all(searches_of(recipes, choices, data), choices, ""):
        raise StageError("a training that chooses a learning rate failed")
    jobs = same_work(jobs_of(recipes, given.seeds, choices, data))
    failed = perform_all(jobs, choices, line)
    if not choices.weights:
        write_cells(jobs, line)
    status = print_tables(jobs, failed, choices, speed=not given.no_speed)
    if failed:
        print(f"{PROGRAM}: error: {len(failed)} of {len(jobs)} runs failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else status


def check(data: Iterable[Data], choices: Choices) -> None:
    """Check the GPUs and all data, so that an error of the last ones is raised before the first training.

    Raises:
        RecipeError: naming all that is missing.
    """
    visible = torch.cuda.device_count() if choices.gpus else 0
    if choices.gpus > visible:  # fairseq trains on the CPU where a GPU does not exist
        raise RecipeError(f"--gpus is {choices.gpus}, but {visible} are visible: give fewer, or 0 for the CPU")
    if choices.gpus == 0 and choices.precision in ("fp16", "tf32"):
        raise RecipeError(f"--precision {choices.precision} needs a GPU: give --gpus, or fp32 or bf16")
    problems = []
    for one in data:
        try:
            one.check()
        except ValueError as error:
            problems.append(str(error))
    if problems:
        raise RecipeError("; ".join(problems))


def jobs_of(recipes: Sequence[Recipe], seeds: Sequence[int], choices: Choices, data: Mapping[str, Data]) -> List[Job]:
    """Return a job for each recipe, learning rate and seed, or one for given weights.

    Args:
        seeds: empty for the recipes' own.
        data: existing data by :attr:`Recipe.place`.
    """
    jobs = []
    for recipe, place, digest in on_data(recipes, data):
        scored = recipe.name in choices.weights
        variants = [recipe] if scored else chosen(recipe, searches(recipe, place, digest, choices))
        for variant in variants:
            jobs += [plan(variant, seed, place, digest, choices) for seed in ([0] if scored else seeds or recipe.seeds)]
    return jobs


def on_data(recipes: Sequence[Recipe], data: Mapping[str, Data]) -> Iterator[Tuple[Recipe, Path, str]]:
    """Yield each recipe, fitted to its data, with the folder of the data and their digest."""
    for recipe in recipes:
        place, digest = Path(), ""  # a speed is measured on no data
        if not recipe.measured:
            own = replace(data[recipe.place], recipe=recipe)
            recipe, place, digest = own.fitted(), own.read, data[recipe.place].examined.digest
        yield recipe, place, digest


def searches_of(recipes: Sequence[Recipe], choices: Choices, data: Mapping[str, Data]) -> List[Job]:
    """Return the trainings that choose the learning rates of the recipes, none for given weights."""
    trained = [recipe for recipe in recipes if recipe.name not in choices.weights]
    return [job for found in on_data(trained, data) for job in searches(*found, choices)]


def jobs_there(recipes: Sequence[Recipe], seeds: Sequence[int], choices: Choices) -> Dict[str, List[Job]]:
    """Return the jobs of each recipe whose data are there, by its name; nothing is made."""
    data = {place: one for place, one in data_of(recipes, choices).items() if one.is_there}
    there = [recipe for recipe in recipes if recipe.measured or recipe.place in data]
    choices = with_automatic(choices, there, begun=False)
    return {recipe.name: jobs_of([recipe], seeds, choices, data) for recipe in there}


def perform(job: Job, run_command: Execute, devices: List[int], command: str) -> None:
    """Train, or convert the weights of --checkpoint, evaluate and record a job, as far as that has not been done.

    Args:
        command: the command line for the results; empty for a job that chooses a learning rate, which is not scored.
    """
    folder = job.folder
    with locks.held(folder / "job.lock", str(folder), "runner"):
        if job.weights is not None:
            stage(folder, "convert", lambda: convert(job), f"{job.name}.convert")
        elif not job.recipe.measured:
            stage(folder, "train", lambda: train(job, run_command, devices), f"{job.name}.train")
        if command:
            title = f"{job.name}.evaluate"
            stage(folder, f"evaluate.{job.evaluation}", lambda: evaluate(job, run_command, devices, command), title)
            record(job)
        (folder / FAILED).unlink(missing_ok=True)


def perform_all(jobs: Sequence[Job], choices: Choices, command: str) -> List[str]:
    """Do all jobs, as many at a time as there are GPUs for; return the names of those that failed.

    A failure is written to the job's folder, and a later success removes it.
    """
    devices, failed = Devices(choices.gpus), set()

    def one(job: Job) -> None:
        with devices.lent(job.gpus) as lent:
            try:
                perform(job, execute, lent, command)
            except (StageError, OSError, ValueError) as error:
                print_line(f"{job.name}: failed: {error}")
                about = {"recipe": job.recipe.name, "seed": job.seed, "error": str(error), "smoke": job.choices.smoke}
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
