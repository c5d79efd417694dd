"""Write checkpoint files, and read a checkpoint's architecture and task."""

import os
import tempfile
from pathlib import Path
from typing import Any, Dict, NamedTuple, Optional

import torch

from fairseq_mega.compat.files import safetensors_files
from fairseq_mega.compat.files.loading import load


def save(checkpoint: Dict[str, Any], path: Path) -> None:
    """Write ``checkpoint`` to ``path`` atomically: the file is complete or does not exist.

    With the suffix .safetensors only the tensors, the configuration and the names of the model are written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if safetensors_files.names_safetensors(path):
        safetensors_files.write(checkpoint, path)
        return
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name + ".", suffix=".partial")
    try:
        with os.fdopen(handle, "wb") as stream:
            torch.save(checkpoint, stream)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


class Origin(NamedTuple):
    """Architecture and task of a checkpoint; None if unknown."""

    arch: Optional[str] = None
    task: Optional[str] = None


def origin_of(paths: Optional[str]) -> Origin:
    """Return the origin of the first checkpoint of a --path, without reading the weights.

    Raises:
        OSError, UnreadableFile, RefusedContents: as :func:`fairseq_mega.compat.files.loading.load`.
    """
    if not paths or "://" in paths:
        return Origin()
    first = paths.split(os.pathsep)[0]
    state = load(first, "cpu", mmap=True)
    try:
        if state.get("cfg"):
            return Origin(state["cfg"]["model"].get("_name"), state["cfg"]["task"].get("_name"))
        return Origin(getattr(state["args"], "arch", None), getattr(state["args"], "task", None))
    except (LookupError, TypeError, AttributeError):
        return Origin()
