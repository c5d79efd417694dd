"""Trainings that two processes share, with both of fairseq's ways to add up their gradients."""

from pathlib import Path

import pytest

from tests import helpers, tiny_trainings

BACKENDS = ["pytorch_ddp", "legacy_ddp"]  # fairseq's default, and that of scripts/


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "kind, without_average",
    [
        ("image", ["--n-dim", 0]),
        ("translation", ["--encoder-n-dim", 0, "--decoder-n-dim", 0]),
    ],
)
def test_without_the_moving_average(
    kind: str, without_average: list, backend: str, trainings: tiny_trainings.Trainings, tmp_path: Path
) -> None:
    options = [*without_average, "--num-workers", 0, "--max-update", 3, "--no-save", "--save-dir", tmp_path]
    output = helpers.train_with_two_processes(trainings.arguments(kind, *options), backend)
    assert '"num_updates": "3"' in output
