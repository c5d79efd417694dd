"""Configure this process for tensors on a CPU: the C library's allocation of memory, and subnormal numbers."""

import ctypes
import os
import sys

import torch

# Constants of <malloc.h>.
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4

CAPACITY = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"  # variable of oneDNN, read at its first operator
FEW = 32  # an update built about 20 at most, in the tiny forms of five recipes


def configure_process() -> None:
    """Keep freed memory for later tensors, and count subnormal numbers as zero, until this process ends.

    Call it before the process starts other threads, which inherit how numbers are counted.
    """
    torch.set_flush_denormal(True)  # Adam's means of a row without gradients end there, and slow some CPUs tenfold
    keep_freed_memory()


def keep_freed_memory() -> bool:
    """Keep the memory of freed tensors in this process for later tensors, until it ends (glibc only).

    By default glibc returns every block above 32 MiB to the system at once. Larger tensors, such as those of a block of
    65,536 tokens or the memory of a beam, are then mapped and cleared page by page again and again, which more than
    doubles the time of training and of beam search. With this setting the process never shrinks below its peak.

    oneDNN keeps its last 1,024 operators, such as a GELU of one shape. Where each batch has another shape, their small
    blocks are spread between the tensors of all batches, larger tensors do not fit into the space between them, and
    the process grows with every batch. So few are kept, unless the variable ``ONEDNN_PRIMITIVE_CACHE_CAPACITY`` is set.

    Returns:
        Whether the C library accepted the settings.
    """
    if not sys.platform.startswith("linux"):
        return False
    os.environ.setdefault(CAPACITY, str(FEW))
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # another C library
        return False
    return mallopt(M_MMAP_MAX, 0) == 1 and mallopt(M_TRIM_THRESHOLD, -1) == 1
