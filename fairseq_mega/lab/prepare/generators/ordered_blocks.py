"""Blocks of work done in several processes, whose results come back in order, and none of them far ahead of its use."""

from collections import deque
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import islice
from typing import Callable, Deque, Iterable, Iterator, TypeVar

Block = TypeVar("Block")
Result = TypeVar("Result")

AHEAD = 3  # blocks per process that are under way or waiting to be used


def in_order(function: Callable[[Block], Result], blocks: Iterable[Block], workers: int) -> Iterator[Result]:
    """Yield `function(block)` of every block, in the order of the blocks; `blocks` may be endless.

    Args:
        function: picklable; its result depends on the block alone, so that `workers` changes nothing but the speed.
        workers: processes; 1 works in this process.

    Raises:
        concurrent.futures.process.BrokenProcessPool: a process died, for example for lack of memory.
    """
    if workers == 1:
        yield from map(function, blocks)
        return
    waiting = iter(blocks)
    with ProcessPoolExecutor(workers) as pool:
        under_way: Deque[Future] = deque(pool.submit(function, block) for block in islice(waiting, AHEAD * workers))
        try:
            while under_way:
                result = under_way.popleft().result()
                under_way.extend(pool.submit(function, block) for block in islice(waiting, 1))
                yield result
        finally:  # the caller may stop early: blocks that are no longer needed are not begun
            pool.shutdown(cancel_futures=True)  # where futures are cancelled one by one, Python 3.11 may wait for ever
