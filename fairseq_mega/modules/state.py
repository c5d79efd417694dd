"""What a causal layer remembers of the past: explicit, immutable, batch first."""

from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor

from fairseq_mega.ops.step import TimeBuffer


class GatedAttentionState(NamedTuple):
    """Memory of a causal gated attention after some steps of a stream; n = tokens of the unfinished chunk."""

    ema: Tensor  # (B, D, N), float32
    keys: TimeBuffer  # (B, n, z)
    values: TimeBuffer  # (B, n, v)
    padding_mask: Optional[Tensor]  # (B, n) bool, True = padding; None: no padding


class CrossAttentionState(NamedTuple):
    """The projected encoder output, computed once, and the number of target steps seen so far."""

    keys: Tensor  # (B, S, z)
    values: Tensor  # (B, S, d)
    padding_mask: Optional[Tensor]  # (B, S) bool, True = padding; None: no padding
    step: int


class LayerState(NamedTuple):
    """Memory of one causal layer."""

    attention: GatedAttentionState
    cross_attention: Optional[CrossAttentionState]


def reorder_state(state: Any, order: Tensor) -> Any:
    """Select batch rows of a state (any nesting of the tuples above and lists), as beam search does.

    Args:
        state: tensors and buffers have the batch as first axis; None and numbers are kept.
        order: (B',) long, the rows to keep, in their new order.

    Returns:
        A state of the same structure; what ``order`` leaves as it is, is not copied, where the CPU can tell.
    """
    # On a GPU the comparison would wait for all that runs there.
    in_order = order.device.type == "cpu" and torch.equal(order, torch.arange(order.numel()))

    def select(item: Any) -> Any:
        if isinstance(item, Tensor):
            return item if in_order and item.size(0) == order.numel() else item.index_select(0, order)
        if isinstance(item, TimeBuffer):
            return item if in_order and item.steps.size(0) == order.numel() else item.select(order)
        if isinstance(item, tuple) and hasattr(item, "_fields"):
            return type(item)(*(select(part) for part in item))
        if isinstance(item, list):
            return [select(part) for part in item]
        return item

    return select(state)


def extend_mask(cached: Optional[Tensor], cached_length: int, new: Optional[Tensor], like: Tensor) -> Optional[Tensor]:
    """Padding mask of cached positions followed by the new positions of ``like`` (B, L, ...); None for no padding."""
    if cached is None and new is None:
        return None
    batch, length = like.shape[:2]
    if cached is None:
        cached = torch.zeros(batch, cached_length, dtype=torch.bool, device=like.device)
    if new is None:
        new = torch.zeros(batch, length, dtype=torch.bool, device=like.device)
    return torch.cat([cached, new], dim=1)
