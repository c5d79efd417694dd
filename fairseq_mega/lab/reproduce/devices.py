"""GPUs that independent runs share: each borrows as many as it needs and returns them."""

import threading
from contextlib import contextmanager
from typing import Iterator, List


class Devices:
    """A pool of GPUs; with none, one run at a time has the CPU.

    Args:
        count: of GPUs.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._free = list(range(count))
        self._changed = threading.Condition()
        self._processor = threading.Lock()

    @contextmanager
    def lent(self, wanted: int) -> Iterator[List[int]]:
        """Wait for a number of GPUs and lend them, as a list of their indices; empty for the CPU."""
        if wanted == 0:
            with self._processor:
                yield []
            return
        assert wanted <= self.count
        with self._changed:
            self._changed.wait_for(lambda: len(self._free) >= wanted)
            taken, self._free = self._free[:wanted], self._free[wanted:]
        try:
            yield taken
        finally:
            with self._changed:
                self._free = sorted([*self._free, *taken])
                self._changed.notify_all()
