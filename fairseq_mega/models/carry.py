"""The state of streams between the calls of an evaluation."""

import weakref
from typing import Any, List, Optional, Tuple

import torch

from fairseq_mega.modules.state import StreamState, reorder_state


class Carry:
    """The state of each stream from one call of a model to the next."""

    def __init__(self) -> None:
        self._kept: weakref.WeakKeyDictionary[Any, Tuple[List[int], StreamState]] = weakref.WeakKeyDictionary()

    def state(
        self, model: Any, streams: List[int], position: int, device: Optional[torch.device] = None
    ) -> Optional[StreamState]:
        """State of the streams, one per row, after ``position`` tokens of each, or None at their beginning.

        Args:
            model: whose state.
            streams: numbers of streams that the call before held, in any order.
            position: how many tokens of each were read.
            device: where the state is.

        Raises:
            ValueError: if the call before did not end there.
        """
        if position == 0:
            return None
        before, state = self._kept.get(model, ([], None))
        end = 0 if state is None else state.step
        if end != position or not set(streams) <= set(before):
            raise ValueError(
                f"streams {streams} are to go on at token {position}, but streams {before} were read up to {end}: "
                f"batches of a streamed text have to be read in their order, each once"
            )
        return reorder_state(state, torch.tensor([before.index(stream) for stream in streams], device=device))

    def keep(self, model: Any, streams: List[int], state: StreamState) -> None:
        """Remember ``state`` as that of the streams, one per row."""
        self._kept[model] = (list(streams), state)
