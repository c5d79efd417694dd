"""The cross entropy of tokens; the kernel never stores the probabilities of all tokens of all rows."""

from typing import Any, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .common import native
from .common.dispatch import Operator, Path, kernels_unavailable


def _suits(logits: Tensor, target: Tensor) -> bool:
    return logits.device.type == "cpu" and not torch.compiler.is_compiling()


PATHS = Operator("cross_entropy", Path("reference"), Path("native", kernels_unavailable, native.DTYPES, suits=_suits))


def cross_entropy(
    logits: Tensor, target: Tensor, *, ignore_index: Optional[int] = None, path: Optional[str] = None
) -> Tuple[Tensor, Tensor]:
    """Losses of predictions: ``-log p(target)``, and the sum of ``-log p`` of all tokens, for label smoothing.

    Args:
        logits: (n, V).
        target: (n,) whole numbers, each below V or ``ignore_index``.
        ignore_index: the target of rows without losses, zero in the result; any number, None for no such rows.
        path: "reference" (PyTorch's log_softmax) or "native" (a CPU's kernel, PyTorch's on other devices) to force a
            path, None for the environment's choice.

    Returns:
        Two times (n,), natural logarithm, in float32 (float64 for float64 logits).

    Raises:
        RuntimeError: for a target that is not a token.

    Source: Szegedy et al., CVPR 2016 (label smoothing).
    """
    ignored = None if ignore_index is None else target == ignore_index
    targets = target.long() if ignored is None else target.long().masked_fill(ignored, 0)
    if PATHS.choose(path, logits, target) == "native" and logits.device.type == "cpu":
        nll, smooth, _ = native.operators.cross_entropy(logits, targets)
    else:
        log_p = F.log_softmax(logits, dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32))
        nll, smooth = -log_p.gather(1, targets[:, None])[:, 0], -log_p.sum(1)
    if ignored is None:
        return nll, smooth
    return nll.masked_fill(ignored, 0.0), smooth.masked_fill(ignored, 0.0)


def _register(namespace: str) -> None:
    operators = getattr(torch.ops, namespace)

    def fake(logits: Tensor, target: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
        nll, statistics = (logits.new_empty((logits.size(0), *more), dtype=torch.float32) for more in ((), (2,)))
        return nll, torch.empty_like(nll), statistics

    def fake_backward(grad_nll: Tensor, grad_smooth: Tensor, logits: Tensor, *rest: Tensor) -> Tensor:
        return logits.new_empty(logits.shape)

    def keep(ctx: Any, inputs: Tuple[Tensor, Tensor], output: Tuple[Tensor, ...]) -> None:
        ctx.save_for_backward(*inputs, output[2])

    def backward(ctx: Any, grad_nll: Tensor, grad_smooth: Tensor, _: Tensor) -> Tuple[Tensor, None]:
        return operators.cross_entropy_backward(grad_nll, grad_smooth, *ctx.saved_tensors), None

    torch.library.register_fake(f"{namespace}::cross_entropy")(fake)
    torch.library.register_fake(f"{namespace}::cross_entropy_backward")(fake_backward)
    native.register_gradients(f"{namespace}::cross_entropy", backward, keep)


native.register(_register)
