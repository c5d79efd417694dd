"""Timestep normalisation in pure PyTorch: the statistics of all prefixes by a tree of merges."""

from typing import NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from .reference import TimestepNormState


class Statistics(NamedTuple):
    """Number of steps, mean and biased variance of one segment of time per position and group, all in float64."""

    size: Tensor  # (B, L)
    mean: Tensor  # (B, L, G)
    variance: Tensor  # (B, L, G)

    def part(self, index: slice) -> "Statistics":
        return Statistics(*(field[:, index] for field in self))


def merge(left: Statistics, right: Statistics) -> Statistics:
    """Statistics of two joined segments; an empty segment (size 0) leaves the other unchanged.

    Means are combined through their difference, never through sums of squares, so that no digit is lost to an offset.

    Source: Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", 1979.
    """
    size = left.size + right.size
    share = (right.size / size.clamp(min=1)).unsqueeze(-1)
    moved = right.mean - left.mean
    variance = left.variance + (right.variance - left.variance) * share + moved.square() * share * (1 - share)
    return Statistics(size, left.mean + moved * share, variance)


def prefixes(steps: Statistics) -> Statistics:
    """Statistics of steps 0..t for every t: merge pairs, compute their prefixes, then fill in the even steps.

    About 2 L merges in 2 log2(L) operations; every result passes through log2(L) merges, not L.
    """
    length = steps.size.size(1)
    if length == 1:
        return steps
    half = length // 2
    pairs = merge(steps.part(slice(0, 2 * half, 2)), steps.part(slice(1, 2 * half, 2)))
    odd = prefixes(pairs)
    later = steps.part(slice(2, None, 2))
    rest = merge(odd.part(slice(0, later.size.size(1))), later)
    fields = []
    for first, others, odds in zip(steps.part(slice(0, 1)), rest, odd):
        even = torch.cat([first, others], dim=1)
        together = torch.stack([even[:, :half], odds], dim=2).flatten(1, 2)
        fields.append(torch.cat([together, even[:, half:]], dim=1))
    return Statistics(*fields)


def timestep_norm_torch(
    x: Tensor, weight: Tensor, bias: Tensor, state: TimestepNormState, padding_mask: Optional[Tensor], eps: float
) -> Tuple[Tensor, TimestepNormState]:
    """Compute all steps of the norm at once; arguments and result are the reference's, L at least 1, padded x 0."""
    groups = state.mean.size(-1)
    present = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
    if padding_mask is not None:
        present = ~padding_mask
    by_group = x.unflatten(-1, (groups, -1))  # (B, L, G, D / G)
    carried = (state.count > 0).unsqueeze(-1)  # (B, 1)
    # The result does not depend on the origin, but its rounding does: measure from the carried mean or the first step.
    first = present.to(torch.int32).argmax(1).view(-1, 1, 1).expand(-1, 1, groups)
    first_mean = by_group.mean(-1).gather(1, first).squeeze(1)
    origin = torch.where(carried, state.mean.to(x.dtype), first_mean).detach()
    by_group = by_group - origin.view(-1, 1, groups, 1)

    step_variance, step_mean = torch.var_mean(by_group, dim=-1, correction=0)
    absent = ~present.unsqueeze(-1)
    steps = Statistics(
        present.double(),
        step_mean.double().masked_fill(absent, 0.0),
        step_variance.double().masked_fill(absent, 0.0),
    )
    before = Statistics(
        state.count.double().unsqueeze(-1),
        (state.mean - origin).masked_fill(~carried, 0.0).unsqueeze(1),
        state.variance.masked_fill(~carried, 0.0).unsqueeze(1),
    )
    seen = merge(before, prefixes(steps))

    distance = by_group - seen.mean.unsqueeze(-1).to(x.dtype)
    y = distance * torch.rsqrt(seen.variance + eps).unsqueeze(-1).to(x.dtype)
    y = (y.flatten(2) * (weight + 1) + bias).masked_fill(absent, 0.0)
    count = state.count + present.sum(1)
    empty = (count == 0).unsqueeze(-1)
    mean = torch.where(empty, state.mean, seen.mean[:, -1] + origin)
    variance = torch.where(empty, state.variance, seen.variance[:, -1])
    return y, TimestepNormState(count, mean, variance)
