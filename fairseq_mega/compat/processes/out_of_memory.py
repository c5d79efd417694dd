"""Errors of a machine without free memory, on CPUs and GPUs."""

import errno
import re
import typing

import torch

from fairseq_mega.compat.patching import wrap

WORDS = re.compile("out of memory|allocate memory|bad_alloc|MemoryError")  # CUDA; CPU and system; C++; Python
OF_KERNELS = re.compile(r'"aten::(new_empty|empty_like|contiguous)".*API call failed')  # our kernels' whole message
REMEDY = (
    "What requires less: a smaller --max-tokens or --batch-size (in training with a larger --update-freq), "
    "--checkpoint-activations in training, --decode-weights in generation; fairseq-mega-inspect --memory estimates the "
    "memory of a training"
)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory ran out; torch raises a plain RuntimeError on a CPU."""
    known = isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
    text = str(error) if isinstance(error, RuntimeError) else ""
    return known or any(pattern.search(text) for pattern in (WORDS, OF_KERNELS))


def describe_out_of_memory(error: BaseException) -> str:
    """Put the error, without the rest of a long text, and the remedy in one line."""
    text = str(error)
    detail = "" if OF_KERNELS.search(text) else "".join(text.splitlines()[:1])
    return f"the memory is not sufficient{detail and f' ({detail})'}. {REMEDY}"


def end_training_without_memory() -> None:
    """End a training whose batch does not fit into the memory of a GPU.

    fairseq logs pages of statistics, omits the batch and continues: the longest sequences would never be trained.
    Validation repeats the batch with the memory of the gradients, as in fairseq.
    """
    from fairseq.trainer import Trainer

    wrap(Trainer, "_log_oom", _end_in_training)


def _end_in_training(original: typing.Callable, self: typing.Any, error: BaseException) -> None:
    if torch.is_grad_enabled():
        raise error
