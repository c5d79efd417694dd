"""A limit on the memory of the tests: a test that asks for too much fails, and no other process is killed for it."""

import resource

BYTES = 12 * 2**30  # a process of the tests has about one GiB


def limit() -> None:
    """Let this process, and each that it starts, have no more than ``BYTES`` of memory of its own."""
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (BYTES if most == resource.RLIM_INFINITY else min(BYTES, most), most))


def lift() -> None:
    """Take the limit back, for programs that ask for more than they use, as those of AddressSanitizer do."""
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
