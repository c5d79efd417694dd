"""MEGALODON classifiers: size, the EMA of the future, training."""

from typing import Any, List

import torch

from tests.support.helpers import run_fairseq
from tests.support.tiny_classifier import build, parameters
from tests.support.tiny_mega import lively
from tests.support.tiny_trainings import Trainings, numbers

ARCH = "megalodon_lra"


def test_raw_speech_has_the_size_of_the_paper() -> None:
    """MEGALODON, Table 7: 300K. The Long Range Arena's sizes are not published."""
    with torch.device("meta"):
        assert parameters(build("megalodon_sc_raw", "image")) == 304_560


def test_the_future_begins_with_the_next_step() -> None:
    """The part of the EMA that looks ahead begins with the next step."""
    model: Any = lively(build(ARCH, "image"))
    ema = model.encoder.layers[0].attention.ema
    impulse = torch.zeros(1, 9, 8, dtype=torch.float64)
    impulse[0, 4] = 1.0
    y = ema(impulse)[0][0]
    past, future = ema.coefficients().expansion.chunk(2)
    weights = ema.coefficients().projection.chunk(2)
    present = (past * weights[0]).sum(1).real + ema.omega
    torch.testing.assert_close(y[4], present)  # of the future's kernel nothing
    torch.testing.assert_close(y[3], (future * weights[1]).sum(1).real)  # and its first value one step before


def test_it_learns_and_is_scored(trainings: Trainings, device_flags: List[str]) -> None:
    options = ["--max-epoch", 6, "--no-save", "--num-workers", 0, *device_flags]
    lines = numbers(run_fairseq("train", trainings.arguments("megalodon text", *options)), "^loss|valid_accuracy")
    losses = [float(line["loss"]) for line in lines if "loss" in line]
    assert sum(losses[-5:]) < 0.9 * sum(losses[:5])
    assert any("valid_accuracy" in line for line in lines)
