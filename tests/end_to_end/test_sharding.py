"""fairseq-mega-train --ddp-backend fully_sharded: checkpoints are whole, and go on in any number of processes."""

from pathlib import Path
from typing import Any, Dict

import pytest
import torch
import torch.distributed.fsdp as fsdp

from tests.support import helpers, tiny_trainings

OPTIONS = ["--num-workers", 0, "--dropout", 0, "--clip-norm", 0.5, "--no-epoch-checkpoints", "--lr", 0.001]
BACKEND = "fully_sharded"
NEEDS_TORCH = pytest.mark.skipif(not hasattr(fsdp, "fully_shard"), reason="fully_shard needs torch 2.6")


def checkpoint(folder: Path) -> Dict[str, Any]:
    return torch.load(folder / "checkpoint_last.pt", weights_only=False)


def assert_same_training(found: Dict[str, Any], expected: Dict[str, Any], tolerance: float) -> None:
    """The same names, shapes and dtypes of weights and of the optimiser's state, and values that are close."""
    assert list(found["model"]) == list(expected["model"])
    for name, weight in expected["model"].items():
        assert found["model"][name].dtype == weight.dtype
        torch.testing.assert_close(found["model"][name], weight, rtol=tolerance, atol=tolerance / 10, msg=name)
    states = [state["last_optimizer_state"] for state in (found, expected)]
    for number, values in states[1]["state"].items():
        for name, value in values.items():
            other = torch.as_tensor(states[0]["state"][number][name])
            torch.testing.assert_close(
                other, torch.as_tensor(value), rtol=10 * tolerance, atol=tolerance, msg=f"{name} of {number}"
            )
    for one, other in zip(*(state.get("master_weights", []) for state in states)):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance / 10)


@NEEDS_TORCH
@pytest.mark.slow
@pytest.mark.parametrize(
    "kind, options, processes, tolerance",
    [
        ("language model", [], 1, 1e-4),
        ("megalodon", ["--bf16", "--checkpoint-activations", "--fp32-reduce-scatter"], 2, 2e-2),
    ],
)
def test_two_processes_train_as_one_does(
    kind: str,
    options: Any,
    processes: int,
    tolerance: float,
    trainings: tiny_trainings.Trainings,
    tmp_path: Path,
) -> None:
    """The same updates; a checkpoint of two processes goes on, in one and in two, as one of one process does."""

    def arguments(updates: int, folder: str, *more: object) -> Any:
        save = ["--max-update", updates, "--save-dir", tmp_path / folder]
        return trainings.arguments(kind, *OPTIONS, *options, *save, *more)

    def going_on(folder: str, source: str, *more: object) -> Any:
        """An own place in the epoch would be counted in batches of a process: begin it again everywhere."""
        restore = ["--restore-file", tmp_path / source / "checkpoint_last.pt", "--reset-dataloader"]
        return arguments(4, folder, *restore, *more)

    alone = ["--update-freq", 2, "--cpu"]
    one = helpers.run_fairseq("train", arguments(2, "one", *alone))
    two = helpers.train_with_two_processes(arguments(2, "two"), BACKEND)
    for found, wanted in zip(
        *(tiny_trainings.numbers(printed, tiny_trainings.OF_A_BATCH)[:2] for printed in (two, one))
    ):
        for name, value in wanted.items():
            assert float(found[name]) == pytest.approx(float(value), rel=tolerance), name
    assert_same_training(checkpoint(tmp_path / "two"), checkpoint(tmp_path / "one"), tolerance)
    if "--bf16" in options:
        state = checkpoint(tmp_path / "two")["last_optimizer_state"]
        assert len(state["master_weights"]) == len(state["state"])

    helpers.run_fairseq("train", going_on("from one", "one", *alone))
    if processes == 1:
        helpers.run_fairseq("train", going_on("from two", "two", *alone))
    else:
        helpers.train_with_two_processes(going_on("from two", "two"), BACKEND)
    assert_same_training(checkpoint(tmp_path / "from two"), checkpoint(tmp_path / "from one"), tolerance)
