"""Timestep normalisation (MEGALODON, section 3.2): one public function, :func:`timestep_norm`, and its paths."""

from typing import Optional, Tuple

import torch
from torch import Tensor

from fairseq_mega.ops.common.dispatch import Operator, Path, check_steps, kernels_unavailable
from fairseq_mega.ops.common.native import DTYPES
from fairseq_mega.ops.common.parts import Parts

from .documents import timestep_norm_documents
from .native import is_single_step, timestep_norm_native, timestep_norm_step
from .reference import TimestepNormState, timestep_norm_reference
from .torch_parallel import timestep_norm_torch

__all__ = ["TimestepNormState", "fresh_statistics", "timestep_norm", "timestep_norm_twice", "widened"]

PATHS = Operator("timestep_norm", Path("reference"), Path("torch"), Path("native", kernels_unavailable, DTYPES))


def timestep_norm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    groups: int,
    *,
    state: Optional[TimestepNormState] = None,
    padding_mask: Optional[Tensor] = None,
    documents: Optional[Parts] = None,
    eps: float = 1e-5,
    path: Optional[str] = None,
) -> Tuple[Tensor, TimestepNormState]:
    """Normalise every step with the mean and variance of its feature group over all steps up to it.

    Args:
        x: (B, L, D), any floating dtype; computed in float32 (float64 for float64), with statistics always in float64.
            L may be 0.
        weight: (D,), the scale minus one.
        bias: (D,).
        groups: G, a divisor of D; a group is D / G features side by side.
        state: statistics of the steps before, to continue a stream or as a prior that counts as ``count`` steps: count
            (B,) int64, mean (B, G), variance (B, G), widened to float64. None starts from 0, 0, 1; where a count is 0,
            mean and variance have no effect.
        padding_mask: (B, L) bool, True = padding: the output is 0 there, and the statistics do not count it.
        documents: of x, each with separate statistics; the first one of a sequence continues from ``state`` unless it
            begins at step 0. None: each sequence is one document.
        eps: added to the variance.
        path: "reference", "torch" or "native" (compiled kernels) to force a path, "auto" for the compiled kernels where
            they can be used and PyTorch elsewhere, None for the environment's choice (see
            :mod:`fairseq_mega.ops.common.dispatch`).

    Returns:
        y (B, L, D) in the dtype of x, and the state after the last step, its mean and variance in float64; gradients
        flow into and out of both.

    Raises:
        ValueError: for an x without three axes, or an unknown path.
        RuntimeError: where path "native" is forced and there are no compiled kernels for x, or for tensors that do not
            fit x.
        TypeError: where path "native" is forced for a dtype the kernels do not compute.

    Source: MEGALODON (Ma et al., NeurIPS 2024), section 3.2, Eq. 4; counts, prior and padding as in the published code.
    """
    check_steps("timestep norm", x, weight.numel())
    path = PATHS.choose(path, x)
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    state = None if state is None else widened(state)
    weight, bias = weight.to(dtype), bias.to(dtype)
    single = path == "native" and padding_mask is None and is_single_step(x, eps)
    if path == "native" and documents is None and not single and x.numel() > 0:
        y, _, state = timestep_norm_native(x, weight, bias, groups, state, padding_mask, eps)
        return y, state
    state = fresh_statistics(x, groups) if state is None else state

    if x.numel() == 0:  # the product has no element, and gradients of zero
        return x * (weight.sum() + bias.sum()).to(x.dtype), state
    if documents is not None:

        def normalize(
            rows: Tensor, before: TimestepNormState, absent: Optional[Tensor]
        ) -> Tuple[Tensor, TimestepNormState]:
            return timestep_norm(rows, weight, bias, groups, state=before, padding_mask=absent, eps=eps, path=path)

        return timestep_norm_documents(normalize, x, state, fresh_statistics(x, groups), documents, padding_mask)
    if single:
        return timestep_norm_step(x, weight, bias, state)
    run = timestep_norm_reference if path == "reference" else timestep_norm_torch
    if padding_mask is not None:
        x = x.masked_fill(padding_mask.unsqueeze(-1), 0.0)  # padded values must not reach a gradient
    with torch.autocast(x.device.type, enabled=False):
        y, state = run(x.to(dtype), weight, bias, state, padding_mask, eps)
    return y.to(x.dtype), state


def timestep_norm_twice(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    groups: int,
    *,
    state: Optional[TimestepNormState],
    padding_mask: Optional[Tensor],
    eps: float,
) -> Tuple[Tensor, Tensor, TimestepNormState]:
    """Return the result of :func:`timestep_norm` for x (B, L, D) in float32, the same in bfloat16, and the state.

    The kernels for GPUs write both at once, and add up both gradients; elsewhere the second is the first.
    """
    if not x.is_cuda or x.numel() == 0 or PATHS.choose(None, x) != "native":
        y, after = timestep_norm(x, weight, bias, groups, state=state, padding_mask=padding_mask, eps=eps)
        return y, y, after
    state = None if state is None else widened(state)
    return timestep_norm_native(x, weight.float(), bias.float(), groups, state, padding_mask, eps, narrow=True)


def widened(state: TimestepNormState) -> TimestepNormState:
    """Return the statistics in float64."""
    return TimestepNormState(state.count, state.mean.double(), state.variance.double())


def fresh_statistics(x: Tensor, groups: int) -> TimestepNormState:
    """Return the statistics of ``groups`` groups before the first step of sequences x (B, L, D)."""
    mean = x.new_zeros(x.size(0), groups, dtype=torch.float64)
    return TimestepNormState(mean.new_zeros(x.size(0), dtype=torch.int64), mean, torch.ones_like(mean))
