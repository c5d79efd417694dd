"""The averaged model of --store-ema: every training keeps one, and a resumed training goes on with it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List

import pytest
import torch
from fairseq.models.ema import EMA

from tests.support import helpers, tiny_trainings

DECAY = 0.5


def test_floats_are_averaged_and_integers_copied() -> None:
    model = torch.nn.BatchNorm1d(3)
    config = SimpleNamespace(
        ema_decay=DECAY, ema_fp32=False, ema_seed_model=None, ema_start_update=0, ema_update_freq=1
    )
    average = EMA(model, config, skip_keys={"bias"})
    torch.nn.init.constant_(model.weight, 3.0)
    torch.nn.init.constant_(model.bias, 3.0)
    model.num_batches_tracked.add_(7)  # type: ignore[union-attr]
    average.step(model)
    averaged = average.get_model().state_dict()
    assert torch.equal(averaged["weight"], torch.full((3,), 2.0))
    assert torch.equal(averaged["bias"], torch.full((3,), 3.0))
    assert averaged["num_batches_tracked"] == 7


def states(checkpoint: Path) -> Dict[str, Any]:
    """The model, its average, and the average in float32 where there is one."""
    loaded = torch.load(checkpoint, weights_only=True)
    averages = {name: value for name, value in loaded["extra_state"].items() if name.startswith("ema")}
    return {"model": loaded["model"], **averages}


@pytest.mark.parametrize(("kind", "precision"), [("language model", ["--ema-fp32"]), ("batch norm", [])])
def test_resumed_training_goes_on_with_the_average(
    kind: str, precision: List[str], trainings: tiny_trainings.Trainings, device_flags: List[str], tmp_path: Path
) -> None:
    options: List[object] = ["--store-ema", "--ema-decay", DECAY, *precision, *device_flags, "--num-workers", 0]
    options += ["--no-epoch-checkpoints", "--save-interval-updates", 2, "--dropout", 0.0]
    for folder, updates in (("whole", 4), ("resumed", 2), ("resumed", 4)):
        more: List[object] = ["--save-dir", tmp_path / folder, "--max-update", updates]
        helpers.run_fairseq("train", trainings.arguments(kind, *options, *more))
    whole, resumed = (states(tmp_path / folder / "checkpoint_last.pt") for folder in ("whole", "resumed"))
    assert ("ema_fp32_params" in whole) == bool(precision)
    for name, entries in whole.items():
        for key, entry in entries.items():
            if torch.is_floating_point(entry) or name != "ema_fp32_params":
                assert torch.equal(entry, resumed[name][key]), (name, key)
    for key, entry in whole["ema"].items():
        if not torch.is_floating_point(entry):
            assert torch.equal(entry, whole["model"][key]), key
    assert any(not torch.equal(entry, whole["model"][key]) for key, entry in whole["ema"].items())
