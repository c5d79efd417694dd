"""A training that is killed in mid-epoch and called again gives the numbers of an uninterrupted one."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional

import pytest
import torch

from tests.support import helpers, tiny_trainings

UPDATES = 40
SAVE_INTERVAL = 5
PROGRAM = "import sys; from fairseq_mega.cli.console import train; sys.exit(train())"
# Ends the process, with no chance to clean up, when it is about to log an update. From outside it would come too late
# on a busy machine. fairseq's loggers are children of "fairseq", whatever name they give to their lines.
KILLER = """
import logging, os, signal
class Killer(logging.Handler):
    def emit(self, record):
        if '"num_updates": "{update}"' in record.getMessage():
            os.kill(os.getpid(), signal.SIGKILL)
logging.getLogger("fairseq").addHandler(Killer())
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return helpers.make_parallel_corpus(tmp_path_factory.mktemp("resume"), sentences=8, train=330)


def command(data: Path, save_dir: Path, device_flags: List[str], kill_at: Optional[int] = None) -> List[str]:
    """A training, which is killed before it logs the update ``kill_at``."""
    program = PROGRAM if kill_at is None else KILLER.replace("{update}", str(kill_at)) + PROGRAM
    options = ["--save-dir", save_dir, "--max-update", UPDATES, "--save-interval-updates", SAVE_INTERVAL]
    options += ["--keep-interval-updates", 1, "--lr-scheduler", "linear_decay", "--total-num-update", UPDATES]
    options += ["--warmup-updates", 4, "--clip-norm", "1.0", "--no-epoch-checkpoints"]
    return [sys.executable, "-u", "-c", program, str(data), *helpers.TINY_TRAINING, *device_flags, *map(str, options)]


def environment() -> Dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(helpers.REPOSITORY), "PYTHONWARNINGS": "ignore"}


def logged(output: str) -> Dict[int, Dict[str, Any]]:
    """The numbers logged after each update, without those that depend on the clock."""
    found = {}
    for text in re.findall(r"\| train_inner \| (\{.*\})", output):
        line = json.loads(text)
        found[int(line["num_updates"])] = {
            name: line[name] for name in ("epoch", "update", "loss", "nll_loss", "ppl", "lr", "gnorm", "bsz")
        }
    return found


def run(arguments: List[str], status: int = 0) -> str:
    """Run a command that ends with this status; returns what it printed."""
    done = subprocess.run(arguments, capture_output=True, text=True, env=environment())
    assert done.returncode == status, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
def test_killed_training_resumes_exactly(data: Path, device_flags: List[str], tmp_path: Path) -> None:
    whole = logged(run(command(data, tmp_path / "whole", device_flags)))
    assert sorted(whole) == list(range(1, UPDATES + 1))
    per_epoch = sum(line["epoch"] == 1 for line in whole.values())
    assert 3 * per_epoch < UPDATES, f"{per_epoch} updates per epoch: too few epochs to test anything"

    killed_at = 2 * per_epoch + SAVE_INTERVAL + 1  # in mid-epoch 3
    killed = command(data, tmp_path / "killed", device_flags, killed_at + 1)
    first = logged(run(killed, status=-signal.SIGKILL))
    assert max(first) == killed_at < UPDATES - 1

    (tmp_path / "killed" / "checkpoint_last.pt.tmp").write_bytes(b"what a copy left behind")
    output = run(command(data, tmp_path / "killed", device_flags))
    resumed_at = int(re.findall(r"Loaded checkpoint .* @ (\d+) updates", output)[0])
    assert resumed_at % SAVE_INTERVAL == 0 and resumed_at % per_epoch != 0 and resumed_at > per_epoch
    second = logged(output)
    assert sorted(second) == list(range(resumed_at + 1, UPDATES + 1))

    for update, line in {**first, **second}.items():
        assert line == whole[update], f"update {update}"
    ends = [torch.load(tmp_path / run / "checkpoint_last.pt", weights_only=True) for run in ("whole", "killed")]
    for name, parameter in ends[0]["model"].items():
        assert torch.equal(parameter, ends[1]["model"][name]), name
    assert ends[0]["extra_state"]["best"] == ends[1]["extra_state"]["best"]


@pytest.mark.parametrize("end", [["--max-update", 3], ["--max-epoch", 1]], ids=["update", "epoch"])
@pytest.mark.parametrize("kind", ["language model", "batch norm", "transformer"])
def test_finished_training_stays_as_it_is(
    kind: str, end: List[object], trainings: tiny_trainings.Trainings, device_flags: List[str], tmp_path: Path
) -> None:
    arguments = trainings.arguments(kind, *end, *device_flags, "--num-workers", 0, "--save-dir", tmp_path)
    helpers.run_fairseq("train", arguments)
    files = {path.name: path.read_bytes() for path in tmp_path.glob("*.pt")}
    assert "checkpoint_last.pt" in files
    again = helpers.run_fairseq("train", arguments)
    assert "train_inner" not in again and "done training" in again
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.pt")} == files

    more = helpers.run_fairseq("train", [*arguments, "--max-update", 40, "--max-epoch", 2])
    assert len(tiny_trainings.numbers(more)) > 1
