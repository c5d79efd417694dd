"""A training whose learning rate follows the clock: it ends within its time on any machine."""

import math
import shutil
from typing import List, Optional, Sequence

import torch

from fairseq_mega.compat.features import precision
from fairseq_mega.lab.quickstart.hyper_parameters import training_words
from fairseq_mega.lab.recipes.recipe import Recipe
from fairseq_mega.lab.runs.commands import StageError
from fairseq_mega.lab.runs.files import write_text
from fairseq_mega.lab.runs.folder import Work
from fairseq_mega.lab.runs.log_progress import Progress
from fairseq_mega.lab.runs.stages import say

LONGEST_MINUTES = 60.0  # of a training of so many updates


def plan_minutes(work: Work, given: Optional[str], updates: Optional[str], usual: float) -> None:
    """Write down the minutes of the training; a second start must not draw them anew."""
    minutes = float(given) if given else LONGEST_MINUTES if updates else usual
    write_text(work.folder / "minutes", f"{minutes:.2f}\n")
    if not updates:
        say(f"the training will take {minutes:.1f} minutes")


def need_commands(*names: str) -> None:
    """Look for the commands of all stages before the first one; raises StageError."""
    missing = [name for name in names if shutil.which(name) is None]
    if missing:
        raise StageError(f"the command '{missing[0]}' was not found: run 'bash scripts/setup.sh'")


def device_options(cpu: bool) -> List[object]:
    """Options of fairseq for the device."""
    if torch.cuda.is_available() and not cpu:
        say(f"device: {torch.cuda.get_device_name()}")
        return []
    say("device: CPU")
    return ["--cpu"]


def precision_of(work: Work, asked: str, device: Sequence[object]) -> str:
    """The precision of the training, drawn once: a second start goes on with it."""
    file = work.folder / "precision"
    if not file.exists():
        choice = precision.choose(asked, "cpu" if device else "cuda")
        say(f"precision: {choice.precision} ({choice.reason})")
        write_text(file, choice.precision + "\n")
    return file.read_text(encoding="utf-8").strip()


def train(work: Work, recipe: Recipe, device: Sequence[object], updates: Optional[str], enough: int) -> None:
    """Train on ``data-bin`` for the minutes planned, or for so many updates, from the last checkpoint on.

    Args:
        device: options on device and precision.
        enough: updates; where the time ends with fewer, a line says why and what helps.

    Raises:
        StageError: where fairseq does.
    """
    checkpoints = work.folder / "checkpoints"
    minutes = float((work.folder / "minutes").read_text(encoding="utf-8"))
    last = int(updates) if updates else None
    if (checkpoints / "checkpoint_last.pt").exists():
        say(f"going on from {checkpoints / 'checkpoint_last.pt'}")
    how_long = f"{updates} updates, at most {minutes:g} minutes" if updates else f"{minutes:g} minutes"
    say(f"training {how_long}; everything is logged in {work.log_file('train')}")
    progress = Progress(last, 60 * minutes)
    work.run("train", ["fairseq-mega-train", *training_words(recipe, work.folder, minutes, last), *device], progress)
    if not updates and progress.updates_done < enough:
        say(
            f"only {progress.updates_done} updates in {minutes:g} minutes: this machine is slow or busy, and the model "
            f"will be poor. Give --train-minutes {2 * math.ceil(minutes)} or more and another --work-dir, or wait "
            "until the machine is idle"
        )
    if not (checkpoints / "checkpoint_best.pt").exists():
        raise StageError(f"the training ended without a checkpoint; see {work.log_file('train')}")
