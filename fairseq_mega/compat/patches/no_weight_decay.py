"""Marks of parameters that weight decay leaves out; they stay with the float32 copies that fairseq makes of weights."""

import typing

import torch

from fairseq_mega.compat.patching import wrap

MARK = "_no_weight_decay"  # attribute of a parameter: True, or SOME for several weights in one tensor
SOME = "some"


def leave_undecayed(parameter: torch.nn.Parameter) -> None:
    """Mark a parameter."""
    setattr(parameter, MARK, True)


def is_undecayed(parameter: torch.Tensor) -> bool:
    """Return whether a parameter is marked."""
    return getattr(parameter, MARK, None) is True


def joins_undecayed(parameter: torch.Tensor) -> bool:
    """Return whether a tensor joins several parameters of which only some are marked, so that the marks are lost."""
    return getattr(parameter, MARK, None) == SOME


def mark_float32_copies() -> None:
    """Mark fairseq's float32 copies of marked parameters, to which --fp16 and --bf16 give the optimiser's steps."""
    from fairseq.optim import FP16Optimizer

    wrap(FP16Optimizer, "build_fp32_params", _copy_marks)


def _copy_marks(
    original: typing.Callable, args: typing.Any, params: typing.Sequence[torch.Tensor], flatten: bool = True
) -> typing.Any:
    copies = original(args, params, flatten)
    if isinstance(copies, dict):  # one tensor on each device
        if any(is_undecayed(parameter) for parameter in params):
            for joined in copies.values():
                setattr(joined, MARK, SOME)
        return copies
    for parameter, copied in zip(params, copies):
        if is_undecayed(parameter):
            leave_undecayed(copied)
    return copies
