"""Memory that runs out ends a command with one line that names what requires less."""

from typing import Any

import numpy as np
import pytest
import torch
from fairseq.tasks import FairseqTask

from fairseq_mega.compat.errors import in_one_line
from fairseq_mega.compat.processes.out_of_memory import is_out_of_memory
from fairseq_mega.ops.activation import silu
from tests.support import helpers, memory, tiny_trainings

NAMED = ("--max-tokens", "--batch-size", "--update-freq", "--checkpoint-activations", "--decode-weights", "--memory")


@pytest.mark.skipif(torch.cuda.is_available(), reason="no limit where there is a GPU")
@pytest.mark.parametrize(
    "allocate",
    [
        lambda: torch.empty(memory.BYTES),
        lambda: bytearray(2**60),
        lambda: np.empty(2**58),
        lambda: silu(torch.zeros(1).expand(memory.BYTES)),
    ],
    ids=["torch", "Python", "numpy", "kernel"],
)
def test_one_line_names_what_requires_less(allocate: Any) -> None:
    with pytest.raises((RuntimeError, MemoryError)) as caught:
        allocate()
    line = in_one_line("fairseq-mega-train", caught.value)
    assert line is not None and "\n" not in line and all(option in line for option in NAMED), caught.value


@pytest.mark.parametrize("error", [RuntimeError("sizes do not match"), RuntimeError('"aten::sum" API call failed')])
def test_other_errors_of_torch_keep_their_traceback(error: Exception) -> None:
    assert not is_out_of_memory(error) and in_one_line("fairseq-mega-train", error) is None


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
