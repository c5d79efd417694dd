"""The EMA of the real steps of padded rows: padding neither feeds nor decays the state."""

from typing import Callable, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_mega.ops.common.transforms import may_look

from .coefficients import EMACoefficients, compute_dtype
from .streaming import state_response


def must_move_padding(
    padding_mask: Tensor, reset_mask: Optional[Tensor], state: Optional[Tensor], return_state: bool
) -> bool:
    """Return whether an EMA would carry a state through padding, from a real step or ``state`` to a real step or out.

    The answer is also yes where code may not look at the mask, as on a GPU: moving padding is always right, and costs
    two copies of the steps. Rows with padding on one side, without states, stay in order.
    """
    if not may_look(padding_mask):
        return True
    real = ~padding_mask
    ends = padding_mask & F.pad(real[:, 1:], (0, 1), value=return_state)  # the last steps of padding that is passed
    if not bool(ends.any()):  # most often, and cheap
        return False
    read = real.cumsum(1) + (state is not None)
    if reset_mask is not None:  # count from the beginning of the document
        ends = ends & ~F.pad(reset_mask[:, 1:], (0, 1))
        read = read - torch.where(reset_mask, read - real.int(), 0).cummax(1).values
    return bool((ends & (read > 0)).any())


def ema_of_real_steps(
    run: Callable[..., Tuple[Tensor, Optional[Tensor]]],
    x: Tensor,
    coefficients: EMACoefficients,
    padding_mask: Tensor,
    reset_mask: Optional[Tensor],
    state: Optional[Tensor],
    return_state: bool,
) -> Tuple[Tensor, Optional[Tensor]]:
    """Run the EMA on rows whose real steps stand side by side, and return its outputs to their places.

    Padding goes behind the real steps, except that in front of a row. With a state, given or returned, all padding goes
    to the front, where it does not change a state of zeros, and the share of ``state`` is added.

    Args:
        run: the EMA of x, padding mask and reset mask that carries a state through padding.
        x: (B, L, D), at least one step.
        coefficients: each (D, N), or (2D, N) if bidirectional.
        padding_mask: (B, L) bool, True = padding.
        reset_mask, state, return_state: as in :func:`fairseq_mega.ops.ema.damped_ema`.

    Returns:
        y (B, L, D), and the state after the last real step, or None without ``return_state``.
    """
    read = (~padding_mask).cumsum(1)
    steps, total = torch.arange(x.size(1), device=x.device), read[:, -1:]
    if state is None and not return_state:
        front, behind = (read == 0).sum(1, keepdim=True), total * (read > 0)  # padding, real steps before padding
    else:
        front, behind = x.size(1) - total, torch.zeros_like(read)
    place = torch.where(padding_mask, steps - read + behind, front + read - 1)
    order = torch.zeros_like(place).scatter(1, place, steps.expand_as(place))
    resets, documents = None, None
    if reset_mask is not None:  # a document begins at its first real step
        documents = reset_mask.cumsum(1)
        own = documents.masked_fill(padding_mask, 0).gather(1, order)
        resets = own.diff(dim=1, prepend=torch.zeros_like(own[:, :1])) > 0
    if state is not None:
        x = x.to(compute_dtype(x))  # two shares are added
    y, last = run(_gathered(x, order), padding_mask.gather(1, order), resets)
    y = _gathered(y, place)
    if state is not None:
        share = _gathered(state_response(coefficients, state, x.size(1)), (read - 1).clamp(min=0))
        y = y + (share if documents is None else share.masked_fill((documents > 0).unsqueeze(-1), 0.0))
    if last is None or not return_state:
        return y, None
    if documents is not None:  # a document may begin after the last real step
        last = last.masked_fill((own[:, -1] < documents[:, -1])[:, None, None], 0.0)
    if state is not None:
        left = (read[:, -1, None, None] * coefficients.log_decay).exp() * state
        last = last + (left if documents is None else left.masked_fill((documents > 0)[:, -1, None, None], 0.0))
    return y, last


def _gathered(x: Tensor, steps: Tensor) -> Tensor:
    """Return the steps (B, L) of each row of x (B, L, D)."""
    first = torch.arange(0, steps.numel(), steps.size(1), device=steps.device)
    return x.flatten(0, 1).index_select(0, (steps + first.unsqueeze(1)).flatten()).view_as(x)
