"""Keys and values of the past; a step is appended without a copy of the steps before."""

from typing import List, Optional

import torch
from torch import Tensor

SMALLEST = 64  # steps that a buffer has room for at first


class TimeBuffer:
    """Steps (B, n, width) of a stream; immutable to its users.

    :meth:`append` returns a longer buffer and does not change this one. Where no gradient is needed, both share memory
    with room behind its end. The first append to a buffer uses this room, a later append to the same buffer copies. So
    a stream may be continued in several ways.

    Args:
        steps: (B, n, width).
    """

    def __init__(self, steps: Tensor) -> None:
        self._steps: Optional[Tensor] = steps
        self._length = steps.size(1)
        self._room: Optional[Tensor] = None  # (B, capacity, width), begins with the steps
        self._written: List[int] = []  # one number, of all buffers in this room: how many of its steps are written

    def __len__(self) -> int:
        return self._length

    @property
    def steps(self) -> Tensor:
        """(B, n, width)."""
        if self._steps is None:  # created at the first read: kernels use the room
            self._steps = self.room[:, : self._length]
        return self._steps

    @property
    def dtype(self) -> torch.dtype:
        """Type of the steps."""
        return (self.room if self._steps is None else self._steps).dtype

    def append(self, steps: Tensor, most: Optional[int] = None) -> "TimeBuffer":
        """Return a buffer with further steps, in the type of these.

        Args:
            steps: (B, k, width).
            most: how many steps the stream will keep at most, None if that is not known.
        """
        old, new = len(self), len(self) + steps.size(1)
        if torch.is_grad_enabled() or (most is not None and new > most) or steps.dtype != self.dtype:
            return TimeBuffer(torch.cat([self.steps.to(steps.dtype), steps], dim=1))
        longer = self.grow(steps.size(1), most)
        longer.steps[:, old:] = steps
        return longer

    def grow(self, count: int, most: Optional[int] = None) -> "TimeBuffer":
        """Return a buffer with ``count`` further steps, which the caller writes at once, see :attr:`room`."""
        old, new = len(self), len(self) + count
        longer = TimeBuffer.__new__(TimeBuffer)
        longer._room, longer._written = self._room, self._written
        if not self._has_room(new):
            capacity = max(SMALLEST, 1 << new.bit_length())  # doubled, so that copies stay few
            if most is not None:
                capacity = min(capacity, most)
            longer._room = self.steps.new_empty(self.steps.size(0), capacity, self.steps.size(2))
            longer._room[:, :old] = self.steps
            longer._written = [old]
        longer._written[0] = new
        longer._steps, longer._length = None, new
        return longer

    @property
    def room(self) -> Tensor:
        """The whole memory (B, capacity, width) of a buffer that has grown; it begins with the steps."""
        assert self._room is not None
        return self._room

    def _has_room(self, new: int) -> bool:
        """Return whether the room exists, is long enough for ``new`` steps, and is this buffer's to write to."""
        room = self._room
        if room is None or room.size(1) < new or self._written[0] != len(self):
            return False
        return torch.is_inference_mode_enabled() or not room.is_inference()

    def after(self, done: int) -> "TimeBuffer":
        """Return the buffer without its first ``done`` steps."""
        return self if done == 0 else TimeBuffer(self.steps[:, done:].clone())

    def select(self, order: Tensor) -> "TimeBuffer":
        """Return the streams ``order`` (B',) long in separate memory with as much room; the room is not copied."""
        if self._room is None:
            return TimeBuffer(self.steps.index_select(0, order))
        room = self._room.new_empty(order.numel(), *self._room.shape[1:])
        chosen = TimeBuffer(room[:, : len(self)])
        chosen._room, chosen._written = room, [len(self)]
        torch.index_select(self.steps, 0, order, out=chosen.steps)
        return chosen

    def bytes(self) -> int:
        """Size in memory."""
        memory = self.steps if self._room is None else self._room
        return memory.numel() * memory.element_size()
