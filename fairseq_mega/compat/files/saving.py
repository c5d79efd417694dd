"""Write files complete or not at all, and checkpoints by one training at a time."""

import contextlib
import os
import pathlib
import shutil
from typing import Callable, Iterator

from fairseq_mega.compat import hooks
from fairseq_mega.compat.patching import around

from .locks import lock_for_training


@contextlib.contextmanager
def written_whole(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield a path to write to; ``path`` itself appears only when the block of code ends without an error.

    Its folder is created if it is missing.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    try:
        yield partial
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


@around("fairseq.file_io", "PathManager.copy")
def copy_checkpoints_atomically(original: Callable, src_path: str, dst_path: str, overwrite: bool = False) -> bool:
    """Make checkpoint_best.pt and checkpoint_last.pt appear complete or not at all.

    fairseq writes the first file of a save under a temporary name but then copies it in place. A process killed during
    the copy leaves a truncated checkpoint_last.pt, from which no training can continue.
    """
    from fairseq.file_io import PathManager

    remote = any(map(PathManager.path_requires_pathmanager, (src_path, dst_path)))
    if remote or (not overwrite and os.path.exists(dst_path)):
        return original(src_path, dst_path, overwrite)
    shutil.copyfile(src_path, f"{dst_path}.tmp")
    os.replace(f"{dst_path}.tmp", dst_path)
    return True


def lock_save_dir(call: hooks.Call) -> Iterator[None]:
    """Lock --save-dir for one training at a time, unless --no-save is passed (event "restore")."""
    cfg, trainer = call.arguments["cfg"], call.arguments["trainer"]
    if not cfg.no_save and trainer.data_parallel_rank == 0:
        lock_for_training(cfg.save_dir, trainer)
    yield
