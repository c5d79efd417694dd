"""Speed of products of bfloat16 matrices on this CPU: four times as fast as float32, or far slower."""

import functools
import time
import typing

import torch

WORTH = 2.0  # times as fast as float32: below, what is not a product eats up the gain
SHAPE = (256, 512, 512)  # rows, inner and columns: 0.13 GFLOP, about a millisecond of one core in float32
REPEATS = 5
LONGEST = 0.05  # seconds of bfloat16, after which it is slow in any case


def product_seconds(shape: typing.Tuple[int, int, int] = SHAPE) -> typing.Dict[torch.dtype, float]:
    """The shortest of some times of a product of matrices on one core, float32 and bfloat16 taken in turn.

    It is the thread's own time: what else the machine does matters little.
    """
    rows, inner, columns = shape
    best = {torch.float32: float("inf"), torch.bfloat16: float("inf")}
    for repeat in range(REPEATS + 1):
        for dtype in best:
            left, right = (torch.full(size, 0.5, dtype=dtype) for size in ((rows, inner), (inner, columns)))
            began = time.thread_time()
            torch.mm(left, right)
            taken = time.thread_time() - began
            if repeat > 0:  # the first makes what the library keeps for later ones
                best[dtype] = min(best[dtype], taken)
        if LONGEST < best[torch.bfloat16] < float("inf"):
            break
    return best


@functools.lru_cache(maxsize=None)
def bfloat16_speedup() -> float:
    """Return the speed of bfloat16 products on this CPU as a multiple of float32's; measured once per process."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        seconds = product_seconds()
    finally:
        torch.set_num_threads(threads)
    return round(seconds[torch.float32] / seconds[torch.bfloat16], 2)
