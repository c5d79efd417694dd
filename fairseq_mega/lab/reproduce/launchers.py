"""Other places to run: commands for the user to start, or jobs of SLURM through submitit."""

import importlib
import shlex
import sys
from pathlib import Path
from typing import Any, Collection, Dict, List, Sequence

from fairseq_mega.lab.runs.commands import PYTHON, environment

from .jobs import Job
from .settings import parse_setting
from .training import MODULE, variables

GPUS_PER_NODE = 8


def training_words(job: Job) -> List[str]:
    """Return the command of a training; with a port fairseq reads its rank and the other nodes from SLURM's
    variables."""
    port = ["--distributed-port", "29500"] if job.gpus > 1 else []
    return [*PYTHON, MODULE, "train", *job.train_arguments(), *port]


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
        print(shlex.join(["fairseq-mega-reproduce", *words, name, "--seeds", str(job.seed), *given[end:]]))


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


def require_submitit() -> None:
    """Raise a ValueError if jobs cannot be submitted to SLURM, before data are made for hours."""
    try:
        importlib.import_module("submitit")
    except ImportError as error:
        raise ValueError("--launcher slurm needs submitit: pip install submitit, or --launcher print") from error


def submit(jobs: Sequence[Job], parameters: Dict[str, Any]) -> List[str]:
    """Submit each training to SLURM through submitit; return the numbers of the jobs.

    A training that needs several nodes has one task for each GPU; fairseq finds the others by SLURM's own variables.
    """
    import submitit  # required by the options

    numbers = []
    for job in jobs:
        nodes = -(-max(1, job.gpus) // GPUS_PER_NODE)
        executor = submitit.AutoExecutor(folder=str(job.folder / "slurm"), cluster="slurm")
        executor.update_parameters(
            name=job.name,
            nodes=nodes,
            tasks_per_node=max(1, job.gpus) // nodes,
            gpus_per_node=job.gpus // nodes,
            **parameters,
        )
        submitted = executor.submit(work, training_words(job), variables(job, []), str(job.folder / "train.log"))
        numbers.append(str(submitted.job_id))
    return numbers


def work(words: Sequence[str], more: Dict[str, str], log: str) -> None:
    """Run a job's task, its share of a training; the first task writes to the log, the others' output is dropped."""
    import os
    import subprocess

    first = os.environ.get("SLURM_PROCID", "0") == "0"
    Path(log).parent.mkdir(parents=True, exist_ok=True)
    with open(log if first else os.devnull, "a", encoding="utf-8") as file:
        status = subprocess.call(list(words), env=environment(more), stdout=file, stderr=subprocess.STDOUT)
    sys.exit(status)
