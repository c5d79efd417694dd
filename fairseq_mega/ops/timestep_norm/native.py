"""Timestep normalisation by the compiled kernels, and the Python half of their operators."""

from typing import Any, Optional, Tuple

import torch
from torch import Tensor

from fairseq_mega.ops.common import native

from .reference import TimestepNormState

STEP_EPS = 1e-5  # of the kernel for one step


def timestep_norm_native(
    x: Tensor, weight: Tensor, bias: Tensor, state: TimestepNormState, padding_mask: Optional[Tensor], eps: float
) -> Tuple[Tensor, TimestepNormState]:
    """The norm by the compiled kernels; gradients save the inputs only.

    Arguments and result are the reference's, with weight and bias in float32; x and y may also be bfloat16 or float16.
    """
    y, mean, variance = native.operators.timestep_norm(
        x, weight, bias, state.count, state.mean, state.variance, padding_mask, eps
    )
    steps = x.size(1) if padding_mask is None else (~padding_mask).sum(1)
    return y, TimestepNormState(state.count + steps, mean, variance)


def is_single_step(x: Tensor, eps: float) -> bool:
    """Return whether :func:`timestep_norm_step` computes x (B, L, D): one step on a CPU without gradients."""
    if torch.is_grad_enabled() or torch.compiler.is_compiling() or eps != STEP_EPS:
        return False
    return x.size(1) == 1 and x.dtype == torch.float32 and x.device.type == "cpu"


def timestep_norm_step(
    x: Tensor, weight: Tensor, bias: Tensor, state: TimestepNormState
) -> Tuple[Tensor, TimestepNormState]:
    """The norm of one step x (B, 1, D) in float32, in the shortest time."""
    y, *now = native.operators.timestep_norm_step(x[:, 0], weight + 1, bias, *state)
    return y.unsqueeze(1), TimestepNormState(*now)


def _register(namespace: str) -> None:
    ops = getattr(torch.ops, namespace)

    def shapes(
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        count: Tensor,
        mean: Tensor,
        variance: Tensor,
        padding_mask: Optional[Tensor],
        eps: float,
    ) -> Tuple[Tensor, Tensor, Tensor]:
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        return y, mean.new_empty(mean.shape), mean.new_empty(mean.shape)

    def backward_shapes(
        grad_y: Tensor,
        grad_mean: Tensor,
        grad_variance: Tensor,
        x: Tensor,
        weight: Tensor,
        count: Tensor,
        mean: Tensor,
        variance: Tensor,
        padding_mask: Optional[Tensor],
        eps: float,
    ) -> Tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        grad_x = torch.empty_like(x, memory_format=torch.contiguous_format)
        of_width, of_groups = weight.new_empty, mean.new_empty
        return grad_x, of_width(weight.shape), of_width(weight.shape), of_groups(mean.shape), of_groups(mean.shape)

    def keep(ctx: Any, inputs: Tuple[Any, ...], output: Tuple[Tensor, ...]) -> None:
        x, weight, _, count, mean, variance, padding_mask, eps = inputs
        ctx.save_for_backward(x, weight, count, mean, variance, padding_mask)
        ctx.eps = eps

    def gradient(ctx: Any, grad_y: Tensor, grad_mean: Tensor, grad_variance: Tensor) -> Tuple[Optional[Tensor], ...]:
        grad_x, grad_weight, grad_bias, grad_before, grad_variance_before = ops.timestep_norm_backward(
            grad_y, grad_mean, grad_variance, *ctx.saved_tensors, ctx.eps
        )
        return grad_x, grad_weight, grad_bias, None, grad_before, grad_variance_before, None, None

    torch.library.register_fake(f"{namespace}::timestep_norm", shapes)
    torch.library.register_fake(f"{namespace}::timestep_norm_backward", backward_shapes)
    native.register_gradients(f"{namespace}::timestep_norm", gradient, keep)


native.register(_register)
