"""Masks of padding, and hidden states without padding."""

from typing import Optional

import torch
from torch import Tensor

from fairseq_mega.ops.common.transforms import may_look


def padding_of(tokens: Tensor, padding_idx: int) -> Optional[Tensor]:
    """Return the padding mask (B, L) of tokens, or None where there is no padding."""
    mask = tokens.eq(padding_idx)
    return mask if mask.any() else None


def zero_padding(x: Tensor, padding_mask: Optional[Tensor]) -> Tensor:
    """Set the padded positions of x (B, L, D) to zero."""
    return x if padding_mask is None else x.masked_fill(padding_mask.unsqueeze(-1), 0.0)


def finite_padding(x: Tensor, padding_mask: Tensor) -> Tensor:
    """Set values at the padded positions of x (B, L, D) to zero unless they are finite: 0 * NaN would spread them."""
    if may_look(x) and bool(x.detach()[padding_mask].isfinite().all()):
        return x
    return x.masked_fill(padding_mask.unsqueeze(-1) & ~x.isfinite(), 0.0)


def extend_mask(before: Optional[Tensor], past: int, new: Optional[Tensor], like: Tensor) -> Optional[Tensor]:
    """Return the padding mask of ``past`` and the new positions of ``like`` (B, L, ...); None for no padding."""
    if before is None and new is None:
        return None
    batch, length = like.shape[:2]
    if before is None:
        before = torch.zeros(batch, past, dtype=torch.bool, device=like.device)
    if new is None:
        new = torch.zeros(batch, length, dtype=torch.bool, device=like.device)
    return torch.cat([before, new], dim=1)


def refuse_to_read_on_after_padding(before: Optional[Tensor], new: Optional[Tensor], state: Optional[Tensor]) -> None:
    """Refuse real steps after padding within an unfinished chunk, because padding occupies places of the chunk.

    Args:
        before: (B, n) bool, True = padding, of the unfinished chunk; None: no padding.
        new: (B, k) bool, of the steps that follow.
        state: (B, D, N) of the EMA before these steps, not zero if the row has real steps; None: no earlier chunks.

    Raises:
        ValueError: if a row has real steps after padding that follows other real steps, in the chunk or before.
    """
    if before is None or before.size(1) == 0 or torch.compiler.is_compiling():
        return
    begun = ~before.all(dim=1)
    if state is not None:
        begun = begun | state.flatten(1).any(dim=1)
    ended = begun & before[:, -1]
    if bool((ended if new is None else ended & ~new.all(dim=1)).any()):
        raise ValueError(
            "a row ends in padding within a chunk and cannot continue with its cache: padding occupies places of "
            "the chunk. Give pieces that end together, or pass the memory alone: then the next step begins a chunk"
        )
