"""The training of a run."""

import shlex
import shutil
from typing import Dict, List, Optional

from fairseq_mega.lab.runs.commands import PYTHON, Execute, StageError
from fairseq_mega.lab.runs.files import write_text
from fairseq_mega.lab.runs.log_progress import Progress
from fairseq_mega.lab.runs.stages import say

from .choices import Choices
from .runs import Run

MODULE = "fairseq_mega.lab.evaluate.lra_results"  # fairseq-mega-train, and how much memory it took
UPDATES, RESULTS = "updates", "results"  # in the folder of a run: a file, a folder


def variables(choices: Choices, devices: List[int]) -> Dict[str, str]:
    """Return the environment's variables: the GPUs of a run, and whether their matrix products may round to TF32.

    Without numbers of devices the run uses the GPUs of its job; on the CPU there are no variables.
    """
    if choices.gpus == 0:
        return {}
    tf32 = choices.used_precision == "tf32"
    chosen = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, devices))} if devices else {}
    return {**chosen, "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE" if tf32 else "NVIDIA_TF32_OVERRIDE": "1" if tf32 else "0"}


def how_long(run: Run) -> str:
    """Return the length of a training in words."""
    parts = [f"{run.updates} updates"] if run.updates else []
    if run.minutes:
        most = "at most " if run.updates else ""
        parts.append(f"{most}{run.minutes:.4g} minute{'s' * (run.minutes != 1)}")
    return ", ".join(parts)


def train(run: Run, choices: Choices, execute: Execute, devices: List[int]) -> int:
    """Train, or continue from the last checkpoint; return the number of updates in the log.

    Raises:
        StageError: if it failed, or ended without a best checkpoint.
    """
    words = run.train_arguments()
    log, checkpoints = run.folder / "train.log", run.folder / "checkpoints"
    write_text(run.folder / "train.command", shlex.join(["fairseq-mega-train", *words]))
    if (checkpoints / "checkpoint_last.pt").exists():
        say(f"going on from {checkpoints / 'checkpoint_last.pt'}")
    say(f"training {how_long(run)}; everything is logged in {log}")
    progress = Progress(run.updates or None, 60 * run.minutes or None)
    execute([*PYTHON, MODULE, "train", *words], log, variables(choices, devices), progress)
    if not (checkpoints / "checkpoint_best.pt").is_file():
        raise StageError(f"the training ended without a best checkpoint; see {log}")
    return progress.updates_done


def trained_updates(run: Run) -> Optional[int]:
    """Return the updates that a run's folder was last trained for; None before that and without a training."""
    file = run.folder / UPDATES
    return int(file.read_text()) if file.exists() else None


def check_updates(run: Run) -> None:
    """Record the updates of a run, and remove the results of fewer; it cannot be trained for fewer than before.

    Raises:
        StageError: where it was.
    """
    before = trained_updates(run) or 0
    if run.updates < before:
        raise StageError(
            f"{run.folder} was trained for {before} updates, --max-update is {run.updates}: give at least {before}"
        )
    if run.updates > before > 0:
        shutil.rmtree(run.folder / RESULTS, ignore_errors=True)
    write_text(run.folder / UPDATES, f"{run.updates}\n")
