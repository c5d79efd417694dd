"""The state of a stream: memory, which crosses chunks, pieces and processes, and the cache of the last chunk."""

from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from fairseq_mega.ops.decoding import TimeBuffer
from fairseq_mega.ops.ema import compute_dtype
from fairseq_mega.ops.timestep_norm import TimestepNormState

from .attention_cache import AttentionCache
from .parameter_cache import ParameterCache


class LayerMemory(NamedTuple):
    """Memory of one causal layer: small, of fixed size, differentiable."""

    ema: Tensor  # (B, D, N), float32, or complex64 of a complex EMA
    norm: Optional[TimestepNormState] = None  # statistics of a timestep norm, in float64


def memory_for(x: Tensor, memory: Optional[LayerMemory]) -> Optional[LayerMemory]:
    """Return a memory in the precision of the EMA of x, such as one that was left before the layer's type changed."""
    if memory is None:
        return None
    dtype = compute_dtype(x)
    dtype = dtype.to_complex() if memory.ema.is_complex() else dtype
    return memory if memory.ema.dtype == dtype else memory._replace(ema=memory.ema.to(dtype))


class CrossAttentionCache(NamedTuple):
    """The projected encoder output, computed once, and the number of target steps seen so far."""

    keys: Tensor  # (B, S, z)
    values: Tensor  # (B, S, d)
    padding_mask: Optional[Tensor]  # (B, S) bool, True = padding; None: no padding
    step: int
    prepared: ParameterCache


class LayerCache(NamedTuple):
    """Cache of one causal layer, used only by the process that filled it."""

    attention: Any  # an AttentionCache, or the FixedCache of a graph
    cross_attention: Optional[CrossAttentionCache] = None


class TrunkMemory(NamedTuple):
    """Memory of a whole stack of layers."""

    layers: Tuple[Optional[LayerMemory], ...]
    final_norm: Any = None  # statistics of a final norm that keeps statistics


class StreamState(NamedTuple):
    """State of a stack of layers after some steps of its streams."""

    step: int  # number of these steps
    memory: TrunkMemory
    cache: Optional[Tuple[Optional[LayerCache], ...]] = None  # None: the next step begins a chunk
    recent: Optional[Tensor] = None  # (B, k) last tokens, where statistics of norms are computed again from them
    prepared: Optional[ParameterCache] = None  # values prepared for the next single step of all layers


# torch.load reads states as torch.save writes them.
torch.serialization.add_safe_globals(
    [
        *(LayerMemory, LayerCache, TrunkMemory, StreamState, CrossAttentionCache, AttentionCache),
        *(ParameterCache, TimeBuffer, TimestepNormState),
    ]
)


def reorder_state(state: Any, order: Tensor) -> Any:
    """Select batch rows of a state (any nesting of the tuples above), as beam search does.

    Args:
        state: tensors and buffers have the batch as first axis; everything else is unchanged.
        order: (B',) long, the rows to keep, in their new order.

    Returns:
        A state of the same structure. An order on the CPU that changes nothing copies nothing.
    """
    # On a GPU the comparison would synchronize.
    in_order = order.device.type == "cpu" and torch.equal(order, torch.arange(order.numel()))

    def select(item: Any) -> Any:
        if isinstance(item, Tensor):
            return item if in_order and item.size(0) == order.numel() else item.index_select(0, order)
        if isinstance(item, TimeBuffer):
            return item if in_order and item.steps.size(0) == order.numel() else item.select(order)
        if isinstance(item, tuple):
            parts = map(select, item)
            return type(item)(*parts) if hasattr(item, "_fields") else tuple(parts)
        return item

    return select(state)


def named_tensors(state: Any, name: str = "") -> Dict[str, Tensor]:
    """Return the tensors of a state (any nesting of the tuples above) by name, such as ``memory.layers.0.ema``."""
    if isinstance(state, TimeBuffer):
        state = state.steps
    if isinstance(state, Tensor):
        return {name: state}
    found: Dict[str, Tensor] = {}
    for part, value in _parts(state, name):
        found.update(named_tensors(value, part))
    return found


def with_named_tensors(like: Any, tensors: Mapping[str, Tensor], name: str = "") -> Any:
    """Return a state of the form of ``like`` with the tensors of another; the inverse of :func:`named_tensors`.

    Args:
        like: a state of the same layers.
        tensors: by name; optional where ``like`` has None.

    Raises:
        KeyError: if a tensor is missing.
    """
    if isinstance(like, TimeBuffer):
        return TimeBuffer(tensors[name])
    if isinstance(like, Tensor):
        return tensors[name]
    if like is None:
        return tensors.get(name)
    if not isinstance(like, tuple):
        return like
    parts = [with_named_tensors(value, tensors, part) for part, value in _parts(like, name)]
    return type(like)(*parts) if hasattr(like, "_fields") else tuple(parts)


def _parts(state: Any, name: str) -> List[Tuple[str, Any]]:
    """Return the names and values in a tuple; nothing for other values."""
    if not isinstance(state, tuple):
        return []
    own = getattr(state, "_fields", range(len(state)))
    return [(f"{name}.{part}" if name else str(part), value) for part, value in zip(own, state)]
