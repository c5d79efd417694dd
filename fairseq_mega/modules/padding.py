"""Padding of sequences: where it is, and hidden states without it."""

from typing import Optional

import torch
from torch import Tensor


def padding_of(tokens: Tensor, padding_idx: int) -> Optional[Tensor]:
    """Padding mask (B, L) of tokens, or None where there is no padding."""
    mask = tokens.eq(padding_idx)
    return mask if mask.any() else None


def zero_padding(x: Tensor, padding_mask: Optional[Tensor]) -> Tensor:
    """Set the padded positions of x (B, L, D) to zero."""
    return x if padding_mask is None else x.masked_fill(padding_mask.unsqueeze(-1), 0.0)


def finite_padding(x: Tensor, padding_mask: Tensor) -> Tensor:
    """Set values at the padded positions of x (B, L, D) to zero unless they are finite: 0 * NaN would spread them."""
    looks = x.device.type == "cpu" and not torch.compiler.is_compiling()  # a GPU would wait for the answer
    if looks and bool(x.detach()[padding_mask].isfinite().all()):
        return x
    return x.masked_fill(padding_mask.unsqueeze(-1) & ~x.isfinite(), 0.0)


def extend_mask(before: Optional[Tensor], past: int, new: Optional[Tensor], like: Tensor) -> Optional[Tensor]:
    """Padding mask of ``past`` positions followed by the new positions of ``like`` (B, L, ...); None for no padding."""
    if before is None and new is None:
        return None
    batch, length = like.shape[:2]
    if before is None:
        before = torch.zeros(batch, past, dtype=torch.bool, device=like.device)
    if new is None:
        new = torch.zeros(batch, length, dtype=torch.bool, device=like.device)
    return torch.cat([before, new], dim=1)
