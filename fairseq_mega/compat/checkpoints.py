"""How checkpoint files are read and copied: what torch.load may build, and copies that are complete or absent."""

import argparse
import collections
import functools
import os
import shutil
import typing

import numpy as np
import torch


def safe_globals() -> list:
    """List what fairseq's own checkpoints and broadcasts contain beyond tensors and plain containers."""
    import omegaconf
    from fairseq.distributed import utils as distributed_utils
    from omegaconf import base, nodes

    multiarray: typing.Any = getattr(np, "_core", None) or np.core
    multiarray = multiarray.multiarray
    found: list = [argparse.Namespace, collections.defaultdict, typing.Any, dict, list, int]
    found += [np.ndarray, np.dtype]
    # A pickle names the module that numpy had when it was written: both spellings may occur.
    found += [
        (getattr(multiarray, function), f"numpy.{core}.multiarray.{function}")
        for function in ("scalar", "_reconstruct")
        for core in ("core", "_core")
    ]
    found += [type(np.dtype(code)) for code in "?bhilqBHILQefdSU"]
    found += [omegaconf.DictConfig, omegaconf.ListConfig]
    found += [getattr(base, name) for name in ("Metadata", "ContainerMetadata") if hasattr(base, name)]
    found += [v for v in vars(nodes).values() if isinstance(v, type) and v.__module__ == nodes.__name__]
    if hasattr(distributed_utils, "_TensorPlaceholder"):
        found.append(distributed_utils._TensorPlaceholder)
    return found


def allow_safe_globals() -> None:
    """Let torch.load read fairseq's checkpoints: torch >= 2.6 refuses every class that is not listed."""
    if not hasattr(torch.serialization, "add_safe_globals"):
        return  # torch before 2.4 has no such list and loads everything
    pairs_known = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 6)
    entries = [entry for entry in safe_globals() if pairs_known or isinstance(entry, type)]
    torch.serialization.add_safe_globals(entries)


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
