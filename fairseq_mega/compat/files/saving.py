"""Write checkpoint files complete or not at all, even on a full disk, and by one training at a time."""

import contextlib
import errno
import glob
import os
import shutil
import typing

from fairseq_mega.compat.files.full_disk import is_disk_full
from fairseq_mega.compat.patching import wrap

from .locks import lock_for_training

_best: typing.Any = None  # options of the save in progress


def save_checkpoints_whole() -> None:
    """Remove the files of a failed save; the error of a full disk names the remedy."""
    from fairseq import checkpoint_utils

    wrap(checkpoint_utils, "torch_persistent_save", _save_whole)


def _save_whole(
    original: typing.Callable, obj: typing.Any, filename: typing.Any, async_write: bool = False
) -> typing.Any:
    if not isinstance(filename, str) or async_write:
        return original(obj, filename, async_write)
    with whole_or_absent(filename):
        return original(obj, filename, async_write)


def name_folders_that_cannot_be_written() -> None:
    """Name --save-dir if it cannot be written to; fairseq names its own test file instead."""
    from fairseq import checkpoint_utils

    wrap(checkpoint_utils, "verify_checkpoint_directory", _verify_folder)


def _verify_folder(original: typing.Callable, save_dir: str) -> None:
    try:
        original(save_dir)
    except OSError as error:
        problem = f"--save-dir {save_dir} cannot be written to ({error.strerror}): give another folder"
        raise OSError(error.errno, problem) from error


def copy_checkpoints_atomically() -> None:
    """Make checkpoint_best.pt and checkpoint_last.pt appear complete or not at all.

    fairseq writes the first file of a save under a temporary name but then copies it in place. A process killed during
    the copy leaves a truncated checkpoint_last.pt, from which no training can continue.
    """
    from fairseq.file_io import PathManager

    wrap(PathManager, "copy", _copy_atomically)


def _copy_atomically(original: typing.Callable, src_path: str, dst_path: str, overwrite: bool = False) -> bool:
    from fairseq.file_io import PathManager

    remote = any(map(PathManager.path_requires_pathmanager, (src_path, dst_path)))
    if remote or (not overwrite and os.path.exists(dst_path)):
        return original(src_path, dst_path, overwrite)
    with whole_or_absent(dst_path):
        shutil.copyfile(src_path, f"{dst_path}.tmp")
        os.replace(f"{dst_path}.tmp", dst_path)
    return True


@contextlib.contextmanager
def whole_or_absent(path: str) -> typing.Iterator[None]:
    """Remove ``path.tmp`` where the block fails.

    Raises:
        OSError: ENOSPC, with the remedy, where the disk is full or the quota used up.
    """
    try:
        yield
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.remove(f"{path}.tmp")
        if not is_disk_full(error):
            raise
        raise OSError(
            errno.ENOSPC,
            f"{path} cannot be written: no space is left on the disk, or the quota is used up. The checkpoints before "
            f"it are whole: make room, and give the same command again (fewer files: --no-epoch-checkpoints, "
            f"--keep-last-epochs N)",
        ) from error


def keep_the_best() -> None:
    """Make --keep-best-checkpoints N keep N: fairseq saves the first, and then only checkpoints that beat the worst
    kept.

    fairseq also does not find files of negative scores, and so does not remove them.
    """
    from fairseq import checkpoint_utils

    wrap(checkpoint_utils, "checkpoint_paths", _with_room_for_the_best)
    wrap(checkpoint_utils, "save_checkpoint", _save_with_room)


def _save_with_room(original: typing.Callable, cfg: typing.Any, *args: typing.Any, **kwargs: typing.Any) -> typing.Any:
    global _best
    _best = cfg
    try:
        return original(cfg, *args, **kwargs)
    finally:
        _best = None


def _with_room_for_the_best(
    original: typing.Callable, path: str, pattern: str = r"checkpoint(\d+)\.pt", keep_match: bool = False
) -> typing.Any:
    number = r"_(\d+\.?\d*)"
    if _best is None or not pattern.startswith(r"checkpoint\.best_") or number not in pattern:
        return original(path, pattern, keep_match)
    found = original(path, pattern.replace(number, r"_(-?\d+\.?\d*)"), keep_match)
    if len(found) >= _best.keep_best_checkpoints:
        return found
    # A file that is not there, worse than any score: fairseq saves what is better, and removes it first.
    maximize = _best.maximize_best_checkpoint_metric
    worst = [os.path.join(path, f"checkpoint.best_{'-inf' if maximize else 'inf'}.pt")]
    return found + worst if maximize else worst + found


def lock_save_dirs() -> None:
    """Lock --save-dir for one training at a time; the error of a second names the holder. With --no-save there is no
    lock."""
    from fairseq import checkpoint_utils

    wrap(checkpoint_utils, "load_checkpoint", _load_locked)


def _load_locked(original: typing.Callable, cfg: typing.Any, trainer: typing.Any, **options: typing.Any) -> typing.Any:
    if not cfg.no_save and trainer.data_parallel_rank == 0:
        locked = lock_for_training(cfg.save_dir, trainer)
        halves = glob.glob(os.path.join(glob.escape(cfg.save_dir), "*.pt.tmp")) if locked else []
        for path in halves:  # of a process that was killed while it saved
            os.remove(path)
    return original(cfg, trainer, **options)
