"""Calling layers, and the sub-layers that stream, in few words."""

from typing import Any, Optional

from torch import Tensor

from fairseq_mega.modules.layer import LayerContext


def run(layer: Any, x: Tensor, after: Optional[Any] = None, **context: Any) -> Any:
    """Output for x (B, L, D), the steps that follow those of the output ``after``; ``context``: see LayerContext."""
    memory, cache = (None, None) if after is None else (after.memory, after.cache)
    return layer(x, LayerContext(**context), memory, cache)


def reorder(out: Any, order: Tensor) -> Any:
    """An output with the batch rows ``order`` of its memory and cache."""
    from fairseq_mega.modules.state import reorder_state

    memory, cache = reorder_state((out.memory, out.cache), order)
    return out._replace(memory=memory, cache=cache)
