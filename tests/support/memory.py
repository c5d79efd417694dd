"""A limit on the memory of the tests: a test that asks for too much fails, and no other process is killed for it."""

import resource

import torch

BYTES = 12 * 2**30  # a process of the tests has about one GiB


def limit() -> None:
    """Let this process, and each that it starts, have no more than ``BYTES`` of memory of its own."""
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (BYTES if most == resource.RLIM_INFINITY else min(BYTES, most), most))


def lift() -> None:
    """Take the limit back, for programs that ask for more than they use, as those of AddressSanitizer do."""
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def prepare_meta() -> None:
    """Let torch list the functions that ``torch.device("meta")`` reaches: it makes the list once, when first asked.

    In a whole run a model of 7B parameters on that device was made in memory after all, which took the whole limit and
    failed what came after it: the list lacked ``torch.empty``, for a reason that was not found. Before the first test
    nothing can have exchanged it.
    """
    with torch.device("meta"):
        assert torch.empty(0).is_meta
