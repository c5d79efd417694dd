"""Timestep normalisation by the compiled kernels, and the Python half of their operators."""

from typing import Any, Optional, Tuple

import torch
from torch import Tensor

from fairseq_mega.ops.common import native

from .reference import TimestepNormState

STEP_EPS = 1e-5  # of the kernel for one step


def timestep_norm_native(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    groups: int,
    state: Optional[TimestepNormState],
    padding_mask: Optional[Tensor],
    eps: float,
    narrow: bool = False,
) -> Tuple[Tensor, Tensor, TimestepNormState]:
    """The norm by the compiled kernels; gradients save the inputs, on a GPU also statistics before each tile.

    Arguments and result are the reference's, with weight and bias in float32, and a state of None for that before the
    first step; x and y may also be bfloat16 or float16. On a GPU ``narrow`` requests the result in bfloat16, too, which
    is the second one; else it has no element.
    """
    before = (None, None, None) if state is None else state
    y, second, *after, _ = native.operators.timestep_norm(x, weight, bias, groups, *before, padding_mask, eps, narrow)
    return y, second, TimestepNormState(*after)


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


def _tiles(length: int, features: int) -> int:
    """Return the number of tiles of steps in the kernels for GPUs, as csrc/timestep_norm/cuda.cu has it."""
    steps = min(64, max(1, 2 ** ((4096 // features).bit_length() - 1)))
    return -(-length // int(steps))


def _register(namespace: str) -> None:
    ops = getattr(torch.ops, namespace)
    serves_cpus = namespace == native.NAMESPACE  # the simulator's kernels are those of GPUs

    def shapes(x: Tensor, weight: Tensor, bias: Tensor, groups: int, *rest: Any) -> Tuple[Tensor, ...]:
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        narrow = x.new_empty(x.shape if rest[-1] else 0, dtype=torch.bfloat16)
        mean, variance = (x.new_empty(x.size(0), groups, dtype=torch.float64) for _ in range(2))
        parts = 0 if serves_cpus and x.device.type == "cpu" else 1 + _tiles(x.size(1), x.size(2) // groups)
        tiles = x.new_empty(x.size(0), parts, groups, 3, dtype=torch.float64)
        return y, narrow, x.new_empty(x.size(0), dtype=torch.int64), mean, variance, tiles

    def backward_shapes(
        grad_y: Tensor,
        grad_narrow: Optional[Tensor],
        grad_mean: Optional[Tensor],
        grad_variance: Optional[Tensor],
        x: Tensor,
        weight: Tensor,
        groups: int,
        count: Optional[Tensor],
        *rest: Any,
    ) -> Tuple[Tensor, ...]:
        grad_x = torch.empty_like(x, memory_format=torch.contiguous_format)
        size = (0,) if count is None else (x.size(0), groups)
        of_statistics = (x.new_empty(size, dtype=torch.float64) for _ in range(2))
        return grad_x, weight.new_empty(2, weight.numel()), *of_statistics

    def keep(ctx: Any, inputs: Tuple[Any, ...], output: Tuple[Tensor, ...]) -> None:
        x, weight, _, ctx.groups, *rest, ctx.eps, ctx.narrow = inputs
        ctx.save_for_backward(x, weight, *rest, output[-1])
        ctx.set_materialize_grads(False)  # nobody uses the last statistics of a whole sequence

    def gradient(
        ctx: Any,
        grad_y: Optional[Tensor],
        grad_narrow: Optional[Tensor],
        _: None,
        grad_mean: Optional[Tensor],
        grad_variance: Optional[Tensor],
        __: None,
    ) -> Tuple[Optional[Tensor], ...]:
        x, weight, *rest = ctx.saved_tensors
        grad_y = torch.zeros_like(x) if grad_y is None else grad_y
        grad_narrow = grad_narrow if ctx.narrow else None
        grad_x, (grad_weight, grad_bias), *before = ops.timestep_norm_backward(
            grad_y, grad_narrow, grad_mean, grad_variance, x, weight, ctx.groups, *rest, ctx.eps
        )
        if rest[0] is None:
            before = [None, None]
        return grad_x, grad_weight, grad_bias, None, None, *before, None, None, None

    torch.library.register_fake(f"{namespace}::timestep_norm", shapes)
    torch.library.register_fake(f"{namespace}::timestep_norm_backward", backward_shapes)
    native.register_gradients(f"{namespace}::timestep_norm", gradient, keep)


native.register(_register)
