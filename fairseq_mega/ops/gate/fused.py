"""The Python half of the fused update gate."""

from typing import Any, Optional, Tuple

import torch
from torch import Tensor

from fairseq_mega.ops import native


def gated_residual_fused(residual: Tensor, update: Tensor, candidate: Tensor, addend: Optional[Tensor]) -> Tensor:
    """The gate by the compiled kernels; arguments and result as :func:`fairseq_mega.ops.gate.gated_residual`."""
    return native.ops().gated_residual(residual, update, candidate, addend)


def _register(namespace: str) -> None:
    operators = getattr(torch.ops, namespace)

    def fake(x: Tensor, update: Tensor, candidate: Tensor, addend: Optional[Tensor]) -> Tensor:
        return x.new_empty(x.shape)

    def fake_backward(grad: Tensor, x: Tensor, *rest: Any) -> Tuple[Tensor, Tensor, Tensor]:
        return x.new_empty(x.shape), x.new_empty(x.shape), x.new_empty(x.shape)

    def setup_context(ctx: Any, inputs: Tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    def backward(ctx: Any, grad: Tensor) -> Tuple[Optional[Tensor], ...]:
        x, update, candidate, addend = ctx.saved_tensors
        found = operators.gated_residual_backward(grad, x, update, candidate, addend)
        return (*found, None if addend is None else found[2])

    torch.library.register_fake(f"{namespace}::gated_residual")(fake)
    torch.library.register_fake(f"{namespace}::gated_residual_backward")(fake_backward)
    torch.library.register_autograd(f"{namespace}::gated_residual", backward, setup_context=setup_context)


native.register(_register)
