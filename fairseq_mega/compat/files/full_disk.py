"""Errors of a full disk: torch's own do not say so, and those of the system name no file."""

import errno
from contextlib import contextmanager
from typing import Iterator, Optional

DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def naming_a_full_disk(place: object) -> Iterator[None]:
    """Name what is written in an OSError on a full disk, which names no file."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        full = _of_system(error)
        if full is None or full.filename is not None:
            raise
        raise OSError(f"{place} cannot be written ({full.strerror}): make room, and try again") from error


def _of_system(error: Optional[BaseException]) -> Optional[OSError]:
    """The system's error among an error and its causes: torch.save raises a second one over it."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in DISK_FULL:
            return error
        error = error.__cause__ or error.__context__
    return None
