"""Other places to run: commands for the user to start, or jobs of SLURM through submitit."""

import shlex
import sys
from pathlib import Path
from typing import Any, Collection, Dict, List, Sequence

from fairseq_mega.lab.runs.commands import PYTHON, environment

from .batches import counts_tokens
from .choices import Choices
from .revising import parse_setting
from .runs import Run
from .tables import is_drawn
from .training import MODULE, variables

GPUS_PER_NODE = 8


def training_words(run: Run) -> List[str]:
    """Return the command of a training; with a port fairseq reads its rank and the other nodes from SLURM's
    variables."""
    port = ["--distributed-port", "29500"] if run.gpus > 1 else []
    return [*PYTHON, MODULE, "train", *run.train_arguments(), *port]


def print_commands(runs: Sequence[Run], choices: Choices, given: Sequence[str], recipes: Sequence[str]) -> None:
    """Print for each run the command that trains it alone and writes its results.

    Args:
        given: the words of the command line.
        recipes: those of them that name recipes.
    """
    end = given.index("--") if "--" in given else len(given)
    for run in runs:
        name = run.recipe.file
        left_out = {"--launcher", "--seeds"}
        left_out |= {"--per-step"} if counts_tokens(run.recipe.config) else set()
        left_out |= set() if is_drawn(run.recipe) else {"--output"}
        words = [word for word in without_options(given[:end], left_out, run) if word not in recipes]
        print(f"# {name}, seed {run.seed}: {run.gpus or 'no'} GPU(s), results in {choices.out}")
        print(shlex.join(["fairseq-mega-reproduce", *words, name, "--seeds", str(run.seed), *given[end:]]))


def without_options(words: Sequence[str], options: Collection[str], run: Run) -> List[str]:
    """Return a command line without some options and their values, and without settings of other recipes alone."""

    def is_left_out(option: str, value: str) -> bool:
        return option in options or (option == "--set" and not parse_setting(value).changes(run.recipe))

    found: List[str] = []
    for word in words:
        option, joined, value = word.partition("=")
        if found and is_left_out(found[-1], word):
            found.pop()
        elif not joined or not is_left_out(option, value):
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
