"""State of streams between the calls of an evaluation."""

import weakref
from typing import Any, List, Optional, Tuple

import torch

from fairseq_mega.modules.state import StreamState, reorder_state


class Carry:
    """State of each stream from one call of a model to the next."""

    def __init__(self) -> None:
        self._kept: weakref.WeakKeyDictionary[Any, Tuple[List[int], StreamState]] = weakref.WeakKeyDictionary()

    def state(
        self, model: Any, streams: List[int], position: int, device: Optional[torch.device] = None
    ) -> Optional[StreamState]:
        """Return the state of the streams, one per row, after ``position`` tokens each; None at their beginning.

        Args:
            model: model that read the streams.
            streams: numbers of streams of the previous call, in any order.
            position: number of tokens that were read of each stream.
            device: device of the state.

        Raises:
            ValueError: if the previous call did not end at ``position`` of these streams.
        """
        if position == 0:
            return None
        before, state = self._kept.get(model, ([], None))
        end = 0 if state is None else state.step
        if end != position or not set(streams) <= set(before):
            raise ValueError(
                f"streams {streams} must continue at token {position}, but streams {before} were read up to token "
                f"{end}: read the batches of a streamed text in their order, each once"
            )
        return reorder_state(state, torch.tensor([before.index(stream) for stream in streams], device=device))

    def keep(self, model: Any, streams: List[int], state: StreamState) -> None:
        """Store ``state`` as the state of the streams, one per row."""
        self._kept[model] = (list(streams), state)
