"""Locks on files, which end with the process that holds them; file systems without locks are logged."""

import contextlib
import errno
import fcntl
import logging
import os
import socket
import threading
import time
import weakref
from typing import Any, Dict, Iterator, Optional, Union

logger = logging.getLogger("fairseq_mega.compat.files.locks")

TRAINING = "training.lock"
BUSY = (errno.EACCES, errno.EAGAIN)
_held: Dict[str, int] = {}  # path of each lock of a training in this process, and its file
_turns: Dict[str, threading.Lock] = {}  # a lock of a file is one of a process: its threads wait here


class InUse(Exception):
    """A lock is held by another process; the message describes the holder, or is "" where the holder has just begun."""


def acquire(path: str, what: str, user: str, wait: bool = False) -> Optional[int]:
    """Lock a file, created if absent, and write a description of this process into it.

    The lock is not one of flock, which processes forked from the holder would keep after its end.

    Args:
        path: of the file.
        what: it protects, for the messages.
        user: what may use it, one at a time, for the messages.
        wait: while another process holds the lock.

    Returns:
        The open file, to be closed; None on a file system without locks (some of NFS), which is logged.

    Raises:
        InUse: if another process holds the lock, on this host or on another that shares the folder.
        OSError: if the file cannot be created.
    """
    logged = False
    while True:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | (fcntl.LOCK_NB if not logged else 0))
        except OSError as error:
            holder = os.pread(file, 4096, 0).decode(errors="replace").strip()
            os.close(file)
            if error.errno not in BUSY:
                logger.warning(f"{what} cannot be locked ({error}): use it for one {user} at a time")
                return None
            if not wait:
                raise InUse(holder) from None
            logger.warning(f"waiting for {what}, which another {user} uses ({holder or 'one that just began'})")
            logged = True
            continue
        with contextlib.suppress(FileNotFoundError):
            if os.stat(path).st_ino == os.fstat(file).st_ino:
                break
        os.close(file)  # the holder removed the file in between
    os.ftruncate(file, 0)
    os.pwrite(file, description().encode(), 0)
    return file


@contextlib.contextmanager
def held(path: Union[str, os.PathLike], what: str, user: str) -> Iterator[None]:
    """Hold a lock within the block; other threads and processes wait for it. See :func:`acquire`."""
    path = os.path.realpath(path)
    with _turns.setdefault(path, threading.Lock()):
        file = acquire(path, what, user, wait=True)
        try:
            yield
        finally:
            if file is not None:
                os.close(file)


def lock_for_training(save_dir: str, owner: Any) -> None:
    """Lock a folder for as long as ``owner`` or this process lives; do nothing if this process holds the lock already.

    Raises:
        FileExistsError: if another process holds the lock.
    """
    path = os.path.realpath(os.path.join(save_dir, TRAINING))
    if path in _held:
        return
    try:
        file = acquire(path, f"--save-dir {save_dir}", "training")
    except InUse as holder:
        raise FileExistsError(
            f"--save-dir {save_dir} is in use by another training ({str(holder) or 'which just began'}): wait for its "
            f"end or stop it and give the same command again, or give another --save-dir"
        ) from None
    if file is not None:
        _held[path] = file
        weakref.finalize(owner, release, path, os.getpid())


def description() -> str:
    """Return a description of this process: host, number, present time."""
    return f"host {socket.gethostname()}, process {os.getpid()}, since {time.strftime('%Y-%m-%d %H:%M:%S %Z')}\n"


def release(path: str, process: int) -> None:
    """Release the lock of a training, unless this is a child of the process that acquired it."""
    if os.getpid() == process and path in _held:
        with contextlib.suppress(OSError):
            os.remove(path)
        os.close(_held.pop(path))
