"""Other places to run: commands for the user to start, or jobs of SLURM through submitit."""

import shlex
import sys
from pathlib import Path
from typing import Any, Dict, List, Sequence

from fairseq_mega.lab.recipes.catalogue import find
from fairseq_mega.lab.recipes.recipe import RecipeError
from fairseq_mega.lab.runs.commands import PYTHON, environment

from .choices import Choices
from .revising import parse_setting
from .runs import Run
from .training import MODULE, variables

GPUS_PER_NODE = 8


def training_words(run: Run) -> List[str]:
    """Return the command of a training; with a port fairseq reads its rank and the other nodes from SLURM's
    variables."""
    port = ["--distributed-port", "29500"] if run.gpus > 1 else []
    return [*PYTHON, MODULE, "train", *run.train_arguments(), *port]


def print_commands(runs: Sequence[Run], choices: Choices, given: Sequence[str]) -> None:
    """Print for each run the command that trains it alone and writes its results."""
    for run in runs:
        name = run.recipe.name
        words = [word for word in given if word not in ("--launcher", "print")]
        print(f"# {name}, seed {run.seed}: {run.gpus or 'no'} GPU(s), results in {choices.out}")
        print(shlex.join(["fairseq-mega-reproduce", *without_names(words, run), name, "--seeds", str(run.seed)]))


def without_names(words: Sequence[str], run: Run) -> List[str]:
    """Return the options of a command line without its recipes, and without settings of other recipes alone."""
    found: List[str] = []
    for place, word in enumerate(words):
        if place > 0 and words[place - 1] == "--set" and not parse_setting(word).changes(run.recipe):
            found.pop()
            continue
        value = place > 0 and words[place - 1].startswith("--")
        if not value and not word.startswith("-"):
            try:
                find(word)
                continue
            except (RecipeError, OSError):
                pass
        found.append(word)
    return found


def submit(runs: Sequence[Run], choices: Choices, parameters: Dict[str, Any]) -> List[str]:
    """Submit each training to SLURM through submitit; return the numbers of the jobs.

    A training that needs several nodes has one task for each GPU; fairseq finds the others by SLURM's own variables.
    """
    import submitit  # required by the options

    numbers = []
    for run in runs:
        nodes = -(-max(1, run.gpus) // GPUS_PER_NODE)
        executor = submitit.AutoExecutor(folder=str(run.folder / "slurm"), cluster="slurm")
        executor.update_parameters(
            name=run.name,
            nodes=nodes,
            tasks_per_node=max(1, run.gpus) // nodes,
            gpus_per_node=run.gpus // nodes,
            **parameters,
        )
        job = executor.submit(
            work, training_words(run), variables(choices.suited_to(run.recipe), []), str(run.folder / "train.log")
        )
        numbers.append(str(job.job_id))
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
