"""Norm statistics of a sliding window, as the published code of MEGALODON computes them at test time."""

from typing import Callable, List, Optional

import torch
from torch import Tensor

from fairseq_mega.modules.layer import LayerContext
from fairseq_mega.modules.state import StreamState, TrunkMemory
from fairseq_mega.modules.trunk import TrunkOutput

BETWEEN = 2  # chunks between two refreshes
Run = Callable[[Tensor, LayerContext, Optional[StreamState]], TrunkOutput]


def run_in_window(
    run: Run, window: int, chunk_size: int, tokens: Tensor, context: LayerContext, state: Optional[StreamState]
) -> TrunkOutput:
    """Read tokens of streams, and refresh the statistics of all timestep norms at regular distances.

    After ``window + 2`` chunks, and after every 2 more, the last ``window`` chunks are read again without state. The
    resulting statistics replace those of the whole text; EMA states, keys and values stay. The result does not depend
    on the pieces in which a text is read.

    Args:
        run: function that reads tokens without a window.
        window: chunks of the window.
        chunk_size: C.
        tokens: (B, L) tokens that follow the tokens of ``state``.
        context: context with ``return_state``.
        state: state of an earlier call, with its last tokens; None at the beginning.

    Source: the published code (inference), where the window is 6.
    """
    group, kept = BETWEEN * chunk_size, window * chunk_size
    outputs: List[Tensor] = []
    begin = 0
    while begin < tokens.size(1) or not outputs:
        step = 0 if state is None else state.step
        if state is not None and step >= kept + group and step % group == 0:
            state = state._replace(memory=_refreshed(run, state, context))
        piece = tokens[:, begin : begin + group - step % group]
        recent = piece if state is None or state.recent is None else torch.cat([state.recent, piece], dim=1)
        out = run(piece, context, state)
        assert out.state is not None
        state = out.state._replace(recent=recent[:, -kept:])
        outputs.append(out.hidden)
        begin += piece.size(1)
    return TrunkOutput(torch.cat(outputs, dim=1), state, None, [])


def _refreshed(run: Run, state: StreamState, context: LayerContext) -> TrunkMemory:
    """Return the memory of a state with the statistics of its last tokens only."""
    assert state.recent is not None
    fresh = run(state.recent, context, None).state
    assert fresh is not None
    layers = []
    for old, new in zip(state.memory.layers, fresh.memory.layers):
        assert old is not None and new is not None
        layers.append(old._replace(norm=new.norm))
    return TrunkMemory(tuple(layers), fresh.memory.final_norm)
