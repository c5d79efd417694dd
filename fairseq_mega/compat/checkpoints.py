"""How checkpoint files are copied: complete or not at all."""

import functools
import os
import shutil


def copy_checkpoints_atomically() -> None:
    """Make checkpoint_best.pt and checkpoint_last.pt appear complete or not at all.

    fairseq writes the first file of a save under a temporary name but then copies it in place, so that a
    process killed during the copy leaves a truncated checkpoint_last.pt, from which nothing can be resumed.
    """
    from fairseq.file_io import PathManager

    original = PathManager.copy
    if hasattr(original, "is_atomic"):
        return

    @functools.wraps(original)
    def copy(src_path: str, dst_path: str, overwrite: bool = False) -> bool:
        if any(map(PathManager.path_requires_pathmanager, (src_path, dst_path))):
            return original(src_path, dst_path, overwrite)
        if not overwrite and os.path.exists(dst_path):
            return original(src_path, dst_path, overwrite)
        temporary = f"{dst_path}.tmp"
        shutil.copyfile(src_path, temporary)
        os.replace(temporary, dst_path)
        return True

    copy.is_atomic = True  # type: ignore[attr-defined]
    PathManager.copy = staticmethod(copy)
