"""Two processes of torchrun train as one does with two batches for an update."""

import os
import subprocess
import sys
from pathlib import Path
from typing import List

import pytest

from tests.support import helpers, tiny_trainings

SCRIPT = "import sys; from fairseq_mega.cli.console import train; sys.exit(train())"
UPDATES: List[object] = ["--max-update", 3, "--clip-norm", 0.5, "--dropout", 0, "--no-epoch-checkpoints"]
UPDATES += ["--num-workers", 0]
PIECES: List[object] = ["--variant-block-multiple-min", 1, "--variant-block-multiple-max", 5]


def start(by_module: bool, folder: Path, arguments: List[object]) -> str:
    """Train with two processes on the CPU; returns what they printed."""
    script = folder / "train.py"
    script.write_text(SCRIPT)
    program: List[object] = ["-m", "fairseq_cli.train", "--user-dir", "fairseq_mega"]
    launcher = ["-m", "torch.distributed.run", "--nproc_per_node", 2, "--master_port", helpers.free_port()]
    words = [sys.executable, *launcher, *(program if by_module else [script])]
    variables = {**os.environ, "PYTHONPATH": str(helpers.REPOSITORY), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run([*map(str, [*words, *arguments, "--cpu"])], env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("by_module", "kind", "shared", "both"),
    [
        (True, "translation", [], []),
        (False, "language model", ["--update-freq", 2, "--chunk-parallel-size", 2], PIECES),
    ],
    ids=["data parallel", "chunk parallel"],
)
def test_two_processes_train_as_one_does(
    by_module: bool,
    kind: str,
    shared: List[object],
    both: List[object],
    trainings: tiny_trainings.Trainings,
    tmp_path: Path,
) -> None:
    options = [*UPDATES, *both]
    alone = trainings.arguments(kind, *options, "--update-freq", 2, "--cpu", "--save-dir", tmp_path / "one")
    one = helpers.run_fairseq("train", alone)
    two = start(by_module, tmp_path, trainings.arguments(kind, *options, *shared, "--save-dir", tmp_path / "two"))
    logged = [tiny_trainings.numbers(printed, tiny_trainings.OF_A_BATCH) for printed in (one, two)]
    assert logged[0] == logged[1] and len(logged[0]) == 4
    tiny_trainings.assert_same_weights(tmp_path / "two", tmp_path / "one")
