"""Measure the speed of bfloat16 matrix products on this CPU: up to four times as fast as float32, or far slower."""

import functools
import time
import typing

import torch

WORTH = 2.0  # minimum speed relative to float32: below, the rest of the computation cancels the gain
SHAPE = (256, 512, 512)  # rows, inner and columns: 0.13 GFLOP, about a millisecond of one core in float32
REPEATS = 5
LONGEST = 0.05  # seconds; a slower bfloat16 product is not measured again


def product_seconds() -> typing.Dict[torch.dtype, float]:
    """Return the minimum time of a matrix product on one core, measured in turn for float32 and bfloat16.

    The time is the thread's CPU time, which depends little on the load of the machine.
    """
    rows, inner, columns = SHAPE
    best = {torch.float32: float("inf"), torch.bfloat16: float("inf")}
    for repeat in range(REPEATS + 1):
        for dtype in best:
            left, right = (torch.full(size, 0.5, dtype=dtype) for size in ((rows, inner), (inner, columns)))
            began = time.thread_time()
            torch.mm(left, right)
            seconds = time.thread_time() - began
            if repeat > 0:  # the library initializes in the first product
                best[dtype] = min(best[dtype], seconds)
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
