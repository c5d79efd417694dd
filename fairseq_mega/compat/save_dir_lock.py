"""A lock on the folder of a training's checkpoints, which ends with the process that holds it."""

import contextlib
import errno
import fcntl
import logging
import os
import shlex
import socket
import sys
import time
import typing
import weakref

logger = logging.getLogger("fairseq_mega.compat.save_dir_lock")

NAME = "training.lock"
_held: typing.Dict[str, int] = {}  # path of each lock of this process, and its file


def lock_for_training(save_dir: str, owner: typing.Any) -> None:
    """Lock a folder for as long as ``owner`` or this process lives; does nothing where this process holds it already.

    The system lets go of the lock of a dead process, so what is left of one is taken over. On a file system without
    locks (some of NFS) a warning is logged instead.

    Raises:
        FileExistsError: if another process holds it, on this host or on another that shares the folder.
    """
    path = os.path.realpath(os.path.join(save_dir, NAME))
    if path in _held:
        return
    os.makedirs(save_dir, exist_ok=True)
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(file, 4096, 0).decode(errors="replace").strip()
            os.close(file)
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                logger.warning(f"--save-dir {save_dir} cannot be locked ({error}): use it for one training at a time")
                return
            raise FileExistsError(
                f"--save-dir {save_dir} is in use by another training ({holder or 'which just began'}): wait for its "
                f"end or stop it and give the same command again, or give another --save-dir"
            ) from None
        with contextlib.suppress(FileNotFoundError):
            if os.stat(path).st_ino == os.fstat(file).st_ino:
                break
        os.close(file)  # its holder removed it in between
    os.ftruncate(file, 0)
    os.pwrite(file, description().encode(), 0)
    _held[path] = file
    weakref.finalize(owner, release, path, os.getpid())


def description() -> str:
    """This process, in words: host, number, since when, command."""
    since = time.strftime("%Y-%m-%d %H:%M:%S %Z")
    return f"host {socket.gethostname()}, process {os.getpid()}, since {since}, {shlex.join(sys.argv)[:2000]}\n"


def release(path: str, process: int) -> None:
    """Give the lock back, unless this is a child of the process that took it."""
    if os.getpid() == process and path in _held:
        with contextlib.suppress(OSError):
            os.remove(path)
        os.close(_held.pop(path))
