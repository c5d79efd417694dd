"""Trainings in bfloat16 beside the same ones in float32: losses, weights, a second start."""

from pathlib import Path
from typing import Any, Dict, List

import pytest
import torch

from tests.support import grids, helpers, tiny_trainings

WAYS = {"autocast": ["--precision", "bf16"], "weights too": ["--bf16"]}
CASES = [("autocast", kind) for kind in ("language model", "megalodon", "text", "translation")]
CASES += [("weights too", kind) for kind in ("megalodon", "translation", "language model", "text", "image", "speech")]
UPDATES = 6
BAND = 0.02  # of float32's losses (bfloat16's relative rounding is 0.004), over these first updates


def train(arguments: List[object], *options: object) -> List[Dict[str, Any]]:
    output = helpers.run_fairseq("train", [*arguments, *options])
    return tiny_trainings.numbers(output, "^(loss|valid_loss|gnorm)$")


def losses(lines: List[Dict[str, Any]]) -> torch.Tensor:
    return torch.tensor([float(next(line[name] for name in ("loss", "valid_loss") if name in line)) for line in lines])


def checkpoint(folder: Path) -> Dict[str, Any]:
    return torch.load(folder / "checkpoint_last.pt", weights_only=True)


def is_rounded(weight: torch.Tensor) -> bool:
    return torch.equal(weight, weight.bfloat16().float())


@pytest.mark.parametrize(("way", "kind"), grids.mostly_exhaustive(CASES, kept=6))
def test_training(
    way: str, kind: str, trainings: tiny_trainings.Trainings, device_flags: List[str], tmp_path: Path
) -> None:
    """Losses stay beside float32's; a run that was stopped goes on as if it had not been; the weights are float32."""
    arguments = trainings.arguments(kind, *device_flags, "--clip-norm", 0.5, "--no-epoch-checkpoints")
    arguments += ["--lr", 0.002, "--update-freq", 2]  # after the rate of every tiny training, which is five times that
    if "--cpu" not in device_flags:  # what dropout draws on a GPU depends on the type
        arguments += ["--dropout", 0]
    plain = train(arguments, "--max-update", UPDATES, "--num-workers", 0, "--no-save", "--save-dir", tmp_path)
    whole = train(arguments, "--max-update", UPDATES, "--save-dir", tmp_path / "whole", *WAYS[way])
    difference = (losses(whole) - losses(plain)).abs() / losses(plain)
    assert 0 < difference.max() < BAND, difference
    first = train(arguments, "--max-update", 3, "--save-dir", tmp_path / "parts", *WAYS[way])
    second = train(arguments, "--max-update", UPDATES, "--save-dir", tmp_path / "parts", *WAYS[way])
    assert [line for line in first + second if "loss" in line] == [line for line in whole if "loss" in line]

    ends = [checkpoint(tmp_path / run) for run in ("whole", "parts")]
    for name, weight in ends[0]["model"].items():
        assert torch.equal(weight, ends[1]["model"][name]), name
        assert weight.dtype in (torch.float32, torch.int64), name
    saved = ends[0]["last_optimizer_state"]
    full = saved["master_weights"] if "master_weights" in saved else list(ends[0]["model"].values())
    assert sum(weight.ndim == 2 and not is_rounded(weight) for weight in full) > 4, "rounded to bfloat16"
    moments = [value for state in saved["state"].values() for value in state.values() if torch.is_tensor(value)]
    assert {value.dtype for value in moments} == {torch.float32}
