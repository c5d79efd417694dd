"""Trainings in several processes, and beyond the memory of a GPU."""

from typing import Any

import pytest
import torch
from fairseq.tasks import FairseqTask

from tests.support import helpers, tiny_trainings


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
