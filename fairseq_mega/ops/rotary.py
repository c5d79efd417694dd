"""Rotary positions: queries and keys turned by angles that grow with the position."""

from functools import lru_cache

import torch
from torch import Tensor


def rotate(x: Tensor, first: int, chunk_size: int, base: float) -> Tensor:
    """Turn the pairs (2 i, 2 i + 1) of x at position t by the angle ``t base^(-2 i / E)``.

    Args:
        x: (B, L, ..., E), E even; float32 or float64.
        first: position of the first step within its chunk.
        chunk_size: positions begin anew with each chunk; -1 for one chunk.
        base: of the angles.

    Returns:
        As x.

    Source: RoFormer (Su et al., 2021), Eq. 34; within chunks as in MEGALODON's code.
    """
    length, last = x.size(1), first + x.size(1)
    reach = chunk_size if 0 < chunk_size < last else 1 << max(last - 1, 0).bit_length()  # few lengths, few tables
    turns = rotations(x.size(-1) // 2, reach, base, x.dtype, x.device)  # (reach, E / 2)
    if last <= reach:
        turns = turns[first:last]
    else:
        turns = turns[torch.arange(first, last, device=x.device) % reach]
    turns = turns.view(length, *(1,) * (x.dim() - 3), -1)
    return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * turns).flatten(-2)


@lru_cache(maxsize=16)
def rotations(half: int, length: int, base: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Turns ``exp(i t base^(-k / half))`` of positions t < length, (length, half) complex; shared by all layers."""
    with torch.inference_mode(False), torch.no_grad():  # the table outlives the call
        frequency = base ** (-torch.arange(half, dtype=torch.float64, device=device) / half)
        angle = torch.arange(length, dtype=torch.float64, device=device).unsqueeze(-1) * frequency
        return torch.polar(torch.ones_like(angle), angle).to(torch.promote_types(dtype, torch.complex64))
