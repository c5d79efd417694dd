"""Mark parameters without weight decay; fairseq's float32 copies of weights keep the marks."""

from typing import Any, Callable, Sequence

import torch

from fairseq_mega.compat.patching import around

MARK = "_no_weight_decay"  # attribute of a parameter


def exclude_from_weight_decay(parameter: torch.nn.Parameter) -> None:
    """Mark a parameter as one without weight decay."""
    setattr(parameter, MARK, True)


def has_no_weight_decay(parameter: torch.Tensor) -> bool:
    """Return whether a parameter is marked."""
    return getattr(parameter, MARK, None) is True


@around("fairseq.optim.fp16_optimizer", "FP16Optimizer.build_fp32_params")
def mark_float32_copies(original: Callable, args: Any, params: Sequence[torch.Tensor], flatten: bool = True) -> Any:
    """Mark fairseq's float32 copies of marked parameters, which the optimiser updates with --fp16 and --bf16."""
    copies = original(args, params, flatten)
    for parameter, copied in [] if flatten else zip(params, copies):  # flatten joins all parameters
        if has_no_weight_decay(parameter):
            exclude_from_weight_decay(copied)
    return copies
