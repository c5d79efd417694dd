"""Timestep normalisation as a plain loop over time, the reference of every fast path."""

from typing import NamedTuple, Optional, Tuple

import torch
from torch import Tensor


class TimestepNormState(NamedTuple):
    """Statistics of the steps seen so far, per sequence; ``count`` is in steps, not in elements.

    Mean and variance are float64 for x of any precision: statistics of a long stream would drift if each call rounded
    them to float32.
    """

    count: Tensor  # type: ignore[assignment]  # (B,) int64; it hides tuple.count
    mean: Tensor  # (B, G) float64
    variance: Tensor  # (B, G) float64, biased


def timestep_norm_reference(
    x: Tensor, weight: Tensor, bias: Tensor, state: TimestepNormState, padding_mask: Optional[Tensor], eps: float
) -> Tuple[Tensor, TimestepNormState]:
    """The norm by its recurrence over time, see :func:`fairseq_mega.ops.timestep_norm`.

    Args:
        x: (B, L, D), float32 or float64, finite where padded.
        weight: (D,) in the dtype of x, the scale minus one.
        bias: (D,) in the dtype of x.
        state: of the steps before; its mean and variance are (B, G), float64.
        padding_mask: (B, L) bool, True = padding, or None.
        eps: added to the variance.

    Returns:
        y (B, L, D) and the state after the last step.

    Source: MEGALODON (Ma et al., NeurIPS 2024), Eq. 4, in the form of Welford.
    """
    batch, groups = state.mean.shape
    count, mean, variance = state
    outputs = []
    for t in range(x.size(1)):
        step = x[:, t].view(batch, groups, -1)
        new_count = count + 1
        share = (1.0 / new_count.double()).unsqueeze(-1)
        step_mean, step_variance = step.mean(-1).double(), step.var(-1, unbiased=False).double()
        moved = (step_mean - mean).square()
        new_variance = (1 - share) * variance + share * step_variance + (1 - share) * share * moved
        new_mean = (1 - share) * mean + share * step_mean
        y = (step - new_mean.unsqueeze(-1)) * torch.rsqrt(new_variance + eps).unsqueeze(-1)
        y = y.view(batch, -1).to(x.dtype) * (weight + 1) + bias
        if padding_mask is not None:
            padded = padding_mask[:, t]
            new_count = torch.where(padded, count, new_count)
            new_mean = torch.where(padded.unsqueeze(-1), mean, new_mean)
            new_variance = torch.where(padded.unsqueeze(-1), variance, new_variance)
            y = y.masked_fill(padded.unsqueeze(-1), 0.0)
        count, mean, variance = new_count, new_mean, new_variance
        outputs.append(y)
    y = torch.stack(outputs, dim=1) if outputs else torch.zeros_like(x)
    return y, TimestepNormState(count, mean, variance)
