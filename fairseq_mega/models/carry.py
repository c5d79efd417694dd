"""The state of streams between the calls of an evaluation."""

import weakref
from typing import Any, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor


class StreamRows(NamedTuple):
    """Where the memory of some streams is."""

    state: Any  # of the streams of the call before
    order: Tensor  # (B,) long: the row of each stream in it


class Carry:
    """What models remember of each stream from one call to the next."""

    def __init__(self) -> None:
        self._kept: weakref.WeakKeyDictionary[Any, Tuple[List[int], int, Any]] = weakref.WeakKeyDictionary()

    def rows(self, model: Any, streams: List[int], position: int) -> Optional[StreamRows]:
        """Memory of the streams after ``position`` tokens of each, or None at their beginning.

        Raises:
            ValueError: if the call before did not end there.
        """
        if position == 0:
            return None
        before, end, state = self._kept.get(model, ([], 0, None))
        if end != position or not set(streams) <= set(before):
            raise ValueError(
                f"streams {streams} are to go on at token {position}, but streams {before} were read up to {end}: "
                f"batches of a streamed text have to be read in their order, each once"
            )
        return StreamRows(state, torch.tensor([before.index(stream) for stream in streams]))

    def keep(self, model: Any, streams: List[int], position: int, state: Any) -> None:
        """Remember ``state`` as that of the streams after ``position`` tokens of each."""
        self._kept[model] = (list(streams), position, state)
