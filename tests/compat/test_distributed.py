"""Trainings in several processes, and beyond the memory of a GPU."""

from pathlib import Path
from typing import Any, List

import pytest
import torch
from fairseq.distributed import utils
from fairseq.tasks import FairseqTask

from tests.support import helpers, processes, tiny_trainings


def gather(rank: int) -> List[Any]:
    return utils.all_gather_list({"rank": rank, "loss": torch.tensor(0.5 * rank)}, group=torch.distributed.group.WORLD)


def test_processes_on_a_cpu_gather_what_they_logged(tmp_path: Path) -> None:
    both = [{"rank": 0, "loss": torch.tensor(0.0)}, {"rank": 1, "loss": torch.tensor(0.5)}]
    assert processes.run_group(gather, 2, tmp_path) == [both, both]


@pytest.mark.parametrize("step", ["train_step", "valid_step"])
def test_a_batch_that_does_not_fit_is_not_omitted(
    step: str, trainings: tiny_trainings.Trainings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Training ends; a batch of validation is tried again when the gradients' memory is free."""
    calls, original = [], getattr(FairseqTask, step)

    def fail_once(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls.append(step)
        if len(calls) == 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return original(self, *args, **kwargs)

    monkeypatch.setattr(FairseqTask, step, fail_once)
    arguments = trainings.arguments("language model", "--max-update", 4, "--no-save", "--cpu", "--num-workers", 0)
    if step == "train_step":
        with pytest.raises(torch.OutOfMemoryError):
            helpers.run_fairseq("train", arguments)
        assert len(calls) == 2
    else:
        assert "done training" in helpers.run_fairseq("train", arguments) and len(calls) > 2
