"""The damped EMA as the plain recurrence of the paper, the reference of every fast path."""

from typing import Optional, Tuple

import torch
from torch import Tensor

from .coefficients import EMACoefficients


def ema_step(x: Tensor, coefficients: EMACoefficients, state: Optional[Tensor]) -> Tuple[Tensor, Tensor]:
    """One step of the recurrence: ``h = expansion x + q h``, ``y = sum_n Re(projection h)``.

    Args:
        x: (B, D).
        coefficients: each (D, N).
        state: (B, D, N), or None for zeros.

    Returns:
        y (B, D) and the new state (B, D, N), complex where a coefficient is.

    Source: MEGA, Eq. 5; MEGALODON (Ma et al., NeurIPS 2024), Eq. 2, without the rotation of the input.
    """
    if state is None:
        state = coefficients.projection.new_zeros(*x.shape, coefficients.projection.size(-1))
    new = x.unsqueeze(-1) * coefficients.expansion + torch.exp(coefficients.log_decay) * state
    return (new * coefficients.projection).sum(-1).real, new


def ema_reference(
    x: Tensor,
    coefficients: EMACoefficients,
    *,
    padding_mask: Optional[Tensor] = None,
    reset_mask: Optional[Tensor] = None,
    bidirectional: bool = False,
    shift: bool = False,
    truncation: Optional[int] = None,
    state: Optional[Tensor] = None,
) -> Tuple[Tensor, Tensor]:
    """The EMA as a loop over time; arguments and result as :func:`fairseq_mega.ops.ema.damped_ema`.

    x is zero where padded. The state waits at padding that a real step follows: its decay there is ``q^0``.
    """
    batch, length, width = x.shape
    if padding_mask is None:
        padding_mask = torch.zeros(batch, length, dtype=torch.bool, device=x.device)
    if reset_mask is None:
        reset_mask = torch.zeros_like(padding_mask)
    if bidirectional:
        past = EMACoefficients(*(c[:width] for c in coefficients))
        future = EMACoefficients(*(c[width:] for c in coefficients))
        y, last = ema_reference(x, past, padding_mask=padding_mask, reset_mask=reset_mask, truncation=truncation)
        absent = padding_mask.flip(1)
        borders = torch.nn.functional.pad(reset_mask[:, 1:].flip(1), (1, 0))  # counted from the end
        z, _ = ema_reference(x.flip(1), future, padding_mask=absent, reset_mask=borders, truncation=truncation)
        z = z.flip(1)
        if shift:
            z = torch.cat([z[:, 1:].masked_fill(reset_mask[:, 1:, None], 0.0), torch.zeros_like(z[:, :1])], dim=1)
        return y + z, last
    if state is None:
        state = coefficients.projection.new_zeros(batch, width, coefficients.expansion.size(-1))
    waits = padding_mask & (~padding_mask).flip(1).cumsum(1).flip(1).bool()
    outputs, last = [], state
    for t in range(length):
        reset, absent, waiting = (mask[:, t, None, None] for mask in (reset_mask, padding_mask, waits))
        if truncation is None:
            decay = coefficients._replace(log_decay=coefficients.log_decay * ~waiting)  # (B, D, N)
            y, state = ema_step(x[:, t], decay, state.masked_fill(reset, 0.0))
        else:
            masks = waits[:, : t + 1], reset_mask[:, : t + 1]
            y, state = _truncated_step(x[:, : t + 1], coefficients, *masks, truncation)
        outputs.append(y)
        last = torch.where(absent, last.masked_fill(reset, 0.0), state)
    return torch.stack(outputs, dim=1) if outputs else torch.zeros_like(x), last


def _truncated_step(
    x: Tensor, coefficients: EMACoefficients, waits: Tensor, reset_mask: Tensor, truncation: int
) -> Tuple[Tensor, Tensor]:
    """The last step's output and state where only the last ``truncation`` steps of its document count."""
    time = (~waits).cumsum(1)
    lags = time[:, -1:] - time  # (B, L)
    powers = torch.exp(coefficients.log_decay.unsqueeze(-1) * lags[:, None, None])  # (B, D, N, L)
    document = reset_mask.cumsum(1)
    counts = (document == document[:, -1:]) & (lags < truncation)
    seen = x.masked_fill(~counts.unsqueeze(-1), 0.0)
    state = torch.einsum("btd,bdnt->bdn", seen.to(powers.dtype), powers) * coefficients.expansion
    return (state * coefficients.projection).sum(-1).real, state
