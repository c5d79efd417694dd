"""Checkpoints as files."""

import os
import tempfile
from pathlib import Path
from typing import Any, Dict

import torch


def save(checkpoint: Dict[str, Any], path: Path) -> None:
    """Write ``checkpoint`` to ``path``; the file appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name + ".", suffix=".partial")
    try:
        with os.fdopen(handle, "wb") as stream:
            torch.save(checkpoint, stream)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
