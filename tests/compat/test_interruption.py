"""Signals: a training ends after its update in all its processes; workers and other commands are not disturbed."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import List

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from tests.support import helpers, tiny_trainings

TWICE = """
import os, signal
from fairseq_mega.compat.processes import interruption
with interruption.listening():
    interruption.stop.trains = {training}
    for _ in range(2):
        os.kill(os.getpid(), signal.{name})
        print("after", flush=True)
"""
HANDLED = [signal.SIGTERM, signal.SIGINT]


@pytest.mark.parametrize(
    ("training", "name", "status"),
    [(True, "SIGTERM", -signal.SIGTERM), (True, "SIGINT", -signal.SIGINT), (False, "SIGTERM", -signal.SIGTERM)],
)
def test_a_second_signal_ends_at_once(training: bool, name: str, status: int) -> None:
    """So does the first before the first update, when there is nothing to save."""
    program = [sys.executable, "-c", TWICE.format(training=training, name=name)]
    done = subprocess.run(program, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (status, "after\n" * training), done.stderr
    assert done.stderr.startswith(f"{name}: the training ends after this update") == training


def test_handlers_are_restored(trainings: tiny_trainings.Trainings) -> None:
    before = [signal.getsignal(number) for number in HANDLED]
    arguments = trainings.arguments("language model", "--max-update", 1, "--no-save", "--cpu", "--num-workers", 0)
    helpers.run_fairseq("train", arguments)
    assert [signal.getsignal(number) for number in HANDLED] == before


class Processes(Dataset):
    """Samples with the number of the process that reads them."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> int:
        return os.getpid()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the sender of a signal is known on Linux")
def test_workers_outlive_a_signal_to_their_group() -> None:
    batches = iter(DataLoader(Processes(), batch_size=1, num_workers=1, prefetch_factor=1))
    worker = int(next(batches))
    for number in HANDLED:
        other = f"import os; os.kill({worker}, {int(number)})"  # the main process alone may end its workers
        subprocess.run([sys.executable, "-c", other], check=True)
        time.sleep(0.2)
    assert [int(batch) for batch in batches] == [worker] * 5
    batches = iter(DataLoader(Processes(), batch_size=1, num_workers=1, prefetch_factor=1))
    next(batches)
    (process,) = batches._workers  # type: ignore[attr-defined]
    process.terminate()  # by the main process
    process.join(20)
    assert process.exitcode == 0


SCRIPT = """
import os, sys
from fairseq_mega.cli.console import train
if __name__ == "__main__":
    print("rank", os.environ["RANK"], "is", os.getpid(), flush=True)
    sys.exit(train())
"""


def start(how: str, folder: Path, arguments: List[object]) -> "subprocess.Popen[str]":
    """Start two processes of a training by torchrun, or by a process that starts them itself."""
    script = folder / "train.py"
    script.write_text(SCRIPT if how == "torchrun" else SCRIPT.replace('os.environ["RANK"]', "1"))
    words = [sys.executable, script, *arguments, "--distributed-world-size", 2]
    if how == "torchrun":
        launcher = ["-m", "torch.distributed.run", "--nproc_per_node", 2, "--master_port", helpers.free_port()]
        words = [sys.executable, *launcher, script, *arguments]
    variables = {**os.environ, "PYTHONPATH": str(helpers.REPOSITORY), "PYTHONWARNINGS": "ignore"}
    command = [*map(str, words), "--cpu"]
    return subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.slow
@pytest.mark.parametrize(("how", "status"), [("torchrun", 1), ("started", 143)])
def test_two_processes_end_after_the_same_update(
    how: str, status: int, trainings: tiny_trainings.Trainings, tmp_path: Path
) -> None:
    """torchrun, with a status of its own, does not learn of the signal, which only the second process gets."""
    options: List[object] = ["--no-epoch-checkpoints", "--num-workers", 1, "--disable-validation"]
    options += ["--save-dir", tmp_path / "told", "--max-update", 100000]
    process = start(how, tmp_path, trainings.arguments("translation", *options))
    assert process.stdout is not None
    output, target = "", 0
    for line in process.stdout:
        output += line
        found = re.search(r"rank 1 is (\d+)", line)
        target = int(found[1]) if found else target
        if '"num_updates": "3"' in line:
            os.kill(target or process.pid, signal.SIGTERM)  # 0 would be the group of this process
    assert process.wait(60) == status, output
    (updates,) = map(int, re.findall(r"SIGTERM: the training ends after update (\d+)", output))
    assert "done training" not in output and updates < 100000
    last = torch.load(tmp_path / "told" / "checkpoint_last.pt", weights_only=True)
    assert last["optimizer_history"][-1]["num_updates"] == updates
