"""The training of a job: its precision, its place on GPUs or the CPU, and its updates."""

import shlex
import threading
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Dict, Iterator, List, Sequence

import torch

from fairseq_mega.cli.progress import Progress
from fairseq_mega.compat.features import precision
from fairseq_mega.lab.recipes.recipe import AUTO, Recipe
from fairseq_mega.lab.runs.commands import PYTHON, Execute, StageError
from fairseq_mega.lab.runs.files import write_text
from fairseq_mega.lab.runs.stages import print_line

from .jobs import Job
from .settings import Choices

MODULE = "fairseq_mega.lab.evaluate.lra_results"  # fairseq-mega-train, and how much memory it took


class Devices:
    """A pool of GPUs.

    Args:
        count: of GPUs.
    """

    def __init__(self, count: int) -> None:
        self._free = list(range(count))
        self._changed = threading.Condition()

    @contextmanager
    def lent(self, number: int) -> Iterator[List[int]]:
        """Wait for a number of GPUs and lend them, as a list of their indices; empty for the CPU."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._free) >= number)
            devices, self._free = self._free[:number], self._free[number:]
        try:
            yield devices
        finally:
            with self._changed:
                self._free = sorted([*self._free, *devices])
                self._changed.notify_all()


def chosen_once(file: Path, requested: str, gpus: int) -> str:
    """Return the precision that a file records; where there is no file, choose one and write it.

    A measurement decides, and the next one may differ; a second start keeps the first one's.
    """
    if not file.exists():
        choice = precision.choose(requested, "cuda" if gpus else "cpu")
        print_line(f"precision: {choice.precision} ({choice.reason})")
        write_text(file, choice.precision + "\n")
    return file.read_text(encoding="utf-8").strip()


def with_automatic(choices: Choices, recipes: Sequence[Recipe], begun: bool) -> Choices:
    """Return the choices with the precision for recipes that leave it to the machine.

    Args:
        begun: whether something is trained; otherwise nothing is written.
    """
    unseen = choices.gpus > 0 and not torch.cuda.is_available()  # of another machine
    fixed = choices.precision is not None or all(recipe.precision != AUTO for recipe in recipes)
    if fixed or choices.smoke or unseen:
        return choices
    file = choices.out / ("precision.gpu" if choices.gpus else "precision.cpu")
    if begun or file.exists():
        return replace(choices, automatic=chosen_once(file, AUTO, choices.gpus))
    return replace(choices, automatic=precision.choose(AUTO, "cuda" if choices.gpus else "cpu").precision)


def rounds_products() -> bool:
    """Return whether the runner's default precision is TF32 here."""
    return torch.cuda.is_available() and torch.cuda.get_device_capability() >= precision.AMPERE


def variables(job: Job, devices: List[int]) -> Dict[str, str]:
    """Return the environment's variables: the GPUs of a job, and whether their matrix products may round to TF32.

    Without indices of devices the job uses all; on the CPU there are no variables.
    """
    if job.choices.gpus == 0:
        return {}
    tf32 = job.precision == "tf32"
    chosen = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, devices))} if devices else {}
    return {**chosen, "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE" if tf32 else "NVIDIA_TF32_OVERRIDE": "1" if tf32 else "0"}


def train(job: Job, execute: Execute, devices: List[int]) -> None:
    """Train, or continue from the last checkpoint.

    Raises:
        StageError: if it failed, or ended without a best checkpoint.
    """
    words, log, checkpoints = job.train_arguments(), job.folder / "train.log", job.folder / "checkpoints"
    write_text(job.folder / "train.command", shlex.join(["fairseq-mega-train", *words]))
    if (checkpoints / "checkpoint_last.pt").exists():
        print_line(f"continuing from {checkpoints / 'checkpoint_last.pt'}")
    minutes = 60 * float(job.config["optimization"].get("stop_time_hours", 0))  # at most; 0 for any time
    length = [f"{job.updates} updates"] * bool(job.updates) + [f"{minutes:.4g} minutes at most"] * bool(minutes)
    print_line(f"training {', '.join(length)}; everything is logged in {log}")
    progress = Progress(job.updates or None, 60 * minutes or None)
    execute([*PYTHON, MODULE, "train", *words], log, variables(job, devices), progress)
    if not (checkpoints / "checkpoint_best.pt").is_file():
        raise StageError(f"the training ended without a best checkpoint; see {log}")
