"""A training that is killed or told to end, and called again, gives the numbers of an uninterrupted one."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Sequence

import pytest
import torch

from tests.support import helpers

UPDATES = 40
SAVE_INTERVAL = 5
PROGRAM = "import sys; from fairseq_mega.cli.console import train; sys.exit(train())"
OF_FAIRSEQ = "import sys; from fairseq_cli.train import cli_main; sys.argv[1:1] = ['--user-dir', {!r}]; cli_main()"
# Sends a signal, with SIGKILL no chance to clean up, when a line is about to be logged. From outside it would come too
# late on a busy machine. The loggers are children of these two, whatever name they give to their lines.
KILLER = """
import logging, os, signal
class Killer(logging.Handler):
    def emit(self, record):
        if '{line}' in record.getMessage():
            os.kill(os.getpid(), signal.{signal})
for name in ("fairseq", "fairseq_cli"):
    logging.getLogger(name).addHandler(Killer())
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return helpers.make_parallel_corpus(tmp_path_factory.mktemp("resume"), sentences=8, train=330)


PLUGIN = helpers.REPOSITORY / "fairseq_mega"
EACH: List[object] = ["--save-interval-updates", SAVE_INTERVAL, "--keep-interval-updates", 1]


def words(data: Path, save_dir: Path, device_flags: List[str], more: Sequence[object] = EACH) -> List[object]:
    """Arguments of a training."""
    options = ["--save-dir", save_dir, "--max-update", UPDATES, *more]
    options += ["--lr-scheduler", "linear_decay", "--total-num-update", UPDATES]
    options += ["--warmup-updates", 4, "--clip-norm", "1.0", "--no-epoch-checkpoints"]
    return [data, *helpers.TINY_TRAINING, *device_flags, *options]


def train(*given: Any, **options: Any) -> str:
    """Train to the end in this process; return what was printed."""
    torch.set_flush_denormal(True)  # as the command does
    return helpers.run_fairseq("train", words(*given, **options))


def stopped(arguments: Sequence[object], at: str, by: str, status: int, program: str = PROGRAM) -> str:
    """Train in a process that gets a signal before it logs a line that contains ``at``; return what it printed."""
    program = KILLER.replace("{line}", at).replace("{signal}", by) + program
    command = [sys.executable, "-u", "-c", program, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(helpers.REPOSITORY), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == status, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def update(number: int) -> str:
    """Return a part of the line of an update."""
    return f'"num_updates": "{number}"'


def logged(output: str) -> Dict[int, Dict[str, Any]]:
    """The numbers logged after each update, without those that depend on the clock."""
    found = {}
    for text in re.findall(r"\| train_inner \| (\{.*\})", output):
        line = json.loads(text)
        found[int(line["num_updates"])] = {
            name: line[name] for name in ("epoch", "update", "loss", "nll_loss", "ppl", "lr", "gnorm", "bsz")
        }
    return found


@pytest.mark.slow
def test_killed_training_resumes_exactly(data: Path, device_flags: List[str], tmp_path: Path) -> None:
    whole = logged(train(data, tmp_path / "whole", device_flags))
    assert sorted(whole) == list(range(1, UPDATES + 1))
    per_epoch = sum(line["epoch"] == 1 for line in whole.values())
    assert 3 * per_epoch < UPDATES, f"{per_epoch} updates per epoch: too few epochs to test anything"

    killed_at = 2 * per_epoch + SAVE_INTERVAL + 1  # in mid-epoch 3
    killed = words(data, tmp_path / "killed", device_flags)
    first = logged(stopped(killed, update(killed_at + 1), "SIGKILL", -signal.SIGKILL))
    assert max(first) == killed_at < UPDATES - 1

    (tmp_path / "killed" / "checkpoint_last.pt.tmp").write_bytes(b"what a copy left behind")
    output = train(data, tmp_path / "killed", device_flags)
    resumed_at = int(re.findall(r"Loaded checkpoint .* @ (\d+) updates", output)[0])
    assert resumed_at % SAVE_INTERVAL == 0 and resumed_at % per_epoch != 0 and resumed_at > per_epoch
    second = logged(output)
    assert sorted(second) == list(range(resumed_at + 1, UPDATES + 1))

    for number, line in {**first, **second}.items():
        assert line == whole[number], f"update {number}"
    assert_same_ends(tmp_path / "whole", tmp_path / "killed")


def assert_same_ends(*folders: Path) -> None:
    """Compare weights, optimizers and best scores."""
    first, second = (torch.load(folder / "checkpoint_last.pt", weights_only=True) for folder in folders)
    for name, parameter in first["model"].items():
        assert torch.equal(parameter, second["model"][name]), name
    torch.testing.assert_close(first["last_optimizer_state"], second["last_optimizer_state"], rtol=0, atol=0)
    assert first["extra_state"]["best"] == second["extra_state"]["best"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("by", "at", "more", "program"),
    [
        ("SIGTERM", update(18), [], PROGRAM),
        ("SIGINT", update(5), ["--update-freq", 3, "--num-workers", 1], OF_FAIRSEQ.format(str(PLUGIN))),
        ("SIGUSR1", "begin validation on", ["--no-last-checkpoints"], PROGRAM),
    ],
    ids=["in mid-epoch", "with --update-freq", "in a validation"],
)
def test_a_training_that_must_end_goes_on_exactly(
    by: str,
    at: str,
    more: List[object],
    program: str,
    data: Path,
    device_flags: List[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FAIRSEQ_MEGA_STOP_SIGNAL", "USR1")
    whole = logged(train(data, tmp_path / "whole", device_flags, more))
    told = words(data, tmp_path / "told", device_flags, more)
    output = stopped(told, at, by, 128 + signal.Signals[by], program)
    first, last = logged(output), tmp_path / "told" / "checkpoint_last.pt"
    assert f"{by}: the training ends after update {max(first)}" in output and "done training" not in output
    assert max(first) < UPDATES and (at.startswith("begin") or update(max(first)) == at)
    if at.startswith("begin"):  # before the validation has ended, too
        assert output.index("Saved checkpoint") < output.index("| valid |") < output.rindex("checkpoint_last.pt (epoch")
    second = logged(train(data, tmp_path / "told", device_flags, more))
    assert sorted({**first, **second}) == sorted(whole) and min(second) == max(first) + 1
    for number, line in {**first, **second}.items():
        assert line == whole[number], f"update {number}"
    if "--no-last-checkpoints" not in more:
        assert_same_ends(tmp_path / "whole", last.parent)
