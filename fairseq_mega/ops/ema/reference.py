"""The damped EMA as the plain recurrence of the paper, the measure of every fast path."""

from typing import Optional, Tuple

import torch
from torch import Tensor

from .coefficients import EMACoefficients


def ema_step(x: Tensor, coefficients: EMACoefficients, state: Optional[Tensor]) -> Tuple[Tensor, Tensor]:
    """One step of the recurrence: ``h = expansion x + q h``, ``y = sum_n projection h``.

    Args:
        x: (B, D).
        coefficients: each (D, N).
        state: (B, D, N), or None for zeros.

    Returns:
        y (B, D) and the new state (B, D, N).

    Source: MEGA, Eq. 5.
    """
    new = x.unsqueeze(-1) * coefficients.expansion
    if state is not None:
        new = new + torch.exp(coefficients.log_decay) * state
    return (new * coefficients.projection).sum(-1), new


def ema_reference(
    x: Tensor,
    coefficients: EMACoefficients,
    *,
    bidirectional: bool = False,
    shift: bool = False,
    truncation: Optional[int] = None,
    state: Optional[Tensor] = None,
) -> Tuple[Tensor, Tensor]:
    """The EMA by looping over time; arguments and result as :func:`fairseq_mega.ops.ema.damped_ema`, x unpadded."""
    if bidirectional:
        width = x.size(-1)
        past = EMACoefficients(*(c[:width] for c in coefficients))
        future = EMACoefficients(*(c[width:] for c in coefficients))
        y, last = ema_reference(x, past, truncation=truncation)
        z, _ = ema_reference(x.flip(1), future, truncation=truncation)
        z = z.flip(1)
        if shift:
            z = torch.cat([z[:, 1:], torch.zeros_like(z[:, :1])], dim=1)
        return y + z, last
    outputs = []
    for t in range(x.size(1)):
        y, state = ema_step(x[:, t], coefficients, state)
        if truncation is not None and t >= truncation:  # forget what is further back than the kernel reaches
            lag = coefficients.log_decay * truncation
            forgotten = x[:, t - truncation, :, None] * coefficients.expansion * torch.exp(lag)
            state = state - forgotten
            y = (state * coefficients.projection).sum(-1)
        outputs.append(y)
    if state is None:
        state = x.new_zeros(x.size(0), x.size(2), coefficients.expansion.size(-1))
    return torch.stack(outputs, dim=1) if outputs else torch.zeros_like(x), state
