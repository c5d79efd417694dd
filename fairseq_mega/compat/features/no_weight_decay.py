"""Mark parameters without weight decay; fairseq's float32 copies of weights keep the marks."""

import typing

import torch

from fairseq_mega.compat.patching import around

MARK = "_no_weight_decay"  # attribute of a parameter: True, or SOME for several weights in one tensor
SOME = "some"


def exclude_from_weight_decay(parameter: torch.nn.Parameter) -> None:
    """Mark a parameter as one without weight decay."""
    setattr(parameter, MARK, True)


def has_no_weight_decay(parameter: torch.Tensor) -> bool:
    """Return whether a parameter is marked."""
    return getattr(parameter, MARK, None) is True


def has_lost_marks(parameter: torch.Tensor) -> bool:
    """Return whether a tensor joins marked and unmarked parameters, so that the marks are lost."""
    return getattr(parameter, MARK, None) == SOME


@around("fairseq.optim.fp16_optimizer", "FP16Optimizer.build_fp32_params")
def mark_float32_copies(
    original: typing.Callable, args: typing.Any, params: typing.Sequence[torch.Tensor], flatten: bool = True
) -> typing.Any:
    """Mark fairseq's float32 copies of marked parameters, which the optimiser updates with --fp16 and --bf16."""
    copies = original(args, params, flatten)
    if isinstance(copies, dict):  # one tensor on each device
        if any(has_no_weight_decay(parameter) for parameter in params):
            for joined in copies.values():
                setattr(joined, MARK, SOME)
        return copies
    for parameter, copied in zip(params, copies):
        if has_no_weight_decay(parameter):
            exclude_from_weight_decay(copied)
    return copies
