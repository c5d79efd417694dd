"""Trainings that two processes share, started by torchrun or with both of fairseq's ways to add up their gradients."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import List

import pytest
import torch

from tests.support import grids, helpers, tiny_trainings

BACKENDS = ["pytorch_ddp", "legacy_ddp"]  # fairseq's default, and that of scripts/


@pytest.mark.slow
def test_torchrun(trainings: tiny_trainings.Trainings, tmp_path: Path) -> None:
    """Two processes train as one does with two batches for an update."""
    options: List[object] = ["--max-update", 3, "--clip-norm", 0.5, "--dropout", 0, "--no-epoch-checkpoints"]
    arguments = trainings.arguments("translation", *options, "--num-workers", 0, "--cpu", "--save-dir")
    one = helpers.run_fairseq("train", [*arguments, tmp_path / "one", "--update-freq", 2])
    launcher = ["-m", "torch.distributed.run", "--nproc_per_node", 2, "--master_port", helpers.free_port()]
    program = ["-m", "fairseq_cli.train", "--user-dir", "fairseq_mega", *arguments, tmp_path / "two"]
    variables = {**os.environ, "PYTHONPATH": str(helpers.REPOSITORY), "PYTHONWARNINGS": "ignore"}
    words = [*map(str, [sys.executable, *launcher, *program])]
    two = subprocess.run(words, env=variables, capture_output=True, text=True)
    assert two.returncode == 0, two.stdout + two.stderr
    logged = [tiny_trainings.numbers(printed, tiny_trainings.OF_A_BATCH) for printed in (one, two.stdout)]
    assert logged[0] == logged[1] and len(logged[0]) == 4
    tiny_trainings.assert_same_weights(tmp_path / "two", tmp_path / "one")


@pytest.mark.slow
@pytest.mark.parametrize("backend", grids.mostly_exhaustive(BACKENDS, kept=1))
def test_logged_validation_is_that_of_the_checkpoint(
    backend: str, trainings: tiny_trainings.Trainings, tmp_path: Path
) -> None:
    """A plain batch norm keeps statistics in each process, and a checkpoint holds those of the first."""
    options: List[object] = ["--num-workers", 0, "--max-epoch", 2, "--save-dir", tmp_path, "--no-epoch-checkpoints"]
    arguments = trainings.arguments("batch norm", *options)
    found = re.findall(r"\| valid \| (\{.*\})", helpers.train_with_two_processes(arguments, backend))
    checkpoint: List[object] = ["--path", tmp_path / "checkpoint_last.pt", "--batch-size", 8, "--num-workers", 0]
    checkpoint += ["--cpu", "--no-progress-bar", "--log-format", "json"]
    again = helpers.run_fairseq("validate", [arguments[0], "--task", "lra-image", *checkpoint])
    (scored,) = re.findall(r"\| valid \| (\{.*\})", again)
    assert json.loads(found[-1])["valid_loss"] == json.loads(scored)["valid_loss"]


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [8, -1])
def test_packed_batches_train_as_padded_ones(chunk: int, trainings: tiny_trainings.Trainings, tmp_path: Path) -> None:
    """Gradients of two processes add up whatever the layout of each one's batch; the numbers agree to rounding."""
    weights, logged = [], []
    for name, options in (("packed", []), ("padded", ["--pad-batches"])):
        given: List[object] = ["--encoder-chunk-size", chunk, "--optimizer", "sgd", "--lr", 0.1, "--num-workers", 0]
        given += ["--max-update", 4, "--log-interval", 1, "--save-dir", tmp_path / name, "--dropout", 0, *options]
        output = helpers.train_with_two_processes(trainings.arguments("text", *given), "legacy_ddp")
        logged.append([float(one["loss"]) for one in tiny_trainings.numbers(output) if "loss" in one])
        weights.append(torch.load(tmp_path / name / "checkpoint_last.pt", weights_only=False)["model"])
    assert len(logged[0]) >= 4 and logged[0] == pytest.approx(logged[1], abs=2e-3)
    packed, padded = weights
    assert all(torch.allclose(packed[key], padded[key], rtol=1e-4, atol=1e-6) for key in padded)
    assert any(not torch.equal(packed[key], padded[key]) for key in padded)
