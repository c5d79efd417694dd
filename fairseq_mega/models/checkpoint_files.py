"""Write checkpoint files, and read a checkpoint's architecture and task."""

import os
from pathlib import Path
from typing import Any, Dict, NamedTuple, Optional

import torch

from fairseq_mega.compat.files import safetensors_files
from fairseq_mega.compat.files.loading import load
from fairseq_mega.compat.files.saving import written_whole


def save(checkpoint: Dict[str, Any], path: Path) -> None:
    """Write ``checkpoint`` to ``path`` atomically: the file is complete or does not exist.

    With the suffix .safetensors only the tensors, the configuration and the names of the model are written.
    """
    if safetensors_files.names_safetensors(path):
        safetensors_files.write(checkpoint, path)
        return
    with written_whole(path) as partial, partial.open("wb") as stream:
        torch.save(checkpoint, stream)


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
