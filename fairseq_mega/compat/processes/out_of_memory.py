"""End a training whose batch does not fit into the memory of a GPU."""

import typing

import torch

from fairseq_mega.compat.patching import wrap


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
