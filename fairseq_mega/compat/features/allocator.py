"""Configure the C library's allocation of memory for tensors on a CPU."""

import ctypes
import sys

# Constants of <malloc.h>.
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4


def keep_freed_memory() -> bool:
    """Keep the memory of freed tensors in this process for later tensors, until it ends (glibc only).

    By default glibc returns every block above 32 MiB to the system at once. Larger tensors, such as those of a block of
    65,536 tokens or the memory of a beam, are then mapped and cleared page by page again and again, which more than
    doubles the time of training and of beam search. With this setting the process never shrinks below its peak.

    Returns:
        Whether the C library accepted the settings.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # another C library
        return False
    return mallopt(M_MMAP_MAX, 0) == 1 and mallopt(M_TRIM_THRESHOLD, -1) == 1
