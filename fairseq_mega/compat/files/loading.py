"""Read files of torch.save as data, whatever torch's default is."""

import errno
import importlib
import os
import pickle
import re
import zipfile
from typing import Any, Callable, Dict, Optional

import torch

from fairseq_mega.compat.files.expressions import UnsafeExpression
from fairseq_mega.compat.patching import ModuleWith, around

from . import safetensors_files
from .safe_globals import RefusedContents, UnreadableFile

# The modules of fairseq that open files with torch.load.
LOADING_MODULES = (
    "checkpoint_utils",
    "data.codedataset",
    "distributed.utils",
    "models.speech_to_text.xm_transformer",
    "models.text_to_speech.vocoder",
    "modules.quantization.pq.em",
)
REFUSED = re.compile(r"GLOBAL (\S+)|(?:unrecognized function|but got) (.+)")  # torch's words before an object's name
ADVICE = "Reading it could run any program: get the checkpoint from a source that you trust, saved as plain values"


def load(file: Any, map_location: Any = None, *, mmap: bool = False) -> Any:
    """Read a file of torch.save that contains only tensors, plain containers and fairseq's settings.

    A file whose name ends with .safetensors is read by :mod:`fairseq_mega.compat.files.safetensors_files`.

    Args:
        file: a path, or a stream of bytes opened for reading.
        map_location: see torch.load.
        mmap: map tensors into memory where the file allows it.

    Raises:
        OSError: if the file cannot be opened.
        RefusedContents: if the file contains anything else, which is not built.
        UnreadableFile: if the file is damaged or of another kind.
    """
    where = str(getattr(file, "name", "the data")) if hasattr(file, "read") else os.fspath(file)
    if safetensors_files.names_safetensors(where):
        return _read_safetensors(where, map_location)
    try:
        mmap = mmap and zipfile.is_zipfile(file)  # files of torch before 1.6 cannot be mapped
        return torch.load(file, map_location=map_location, weights_only=True, mmap=mmap)
    except RefusedContents as error:
        raise RefusedContents(f"{where} is refused: it contains {error}. {ADVICE}") from error
    except Exception as error:
        if isinstance(error, OSError) and error.errno != errno.EINVAL:  # of a damaged file, which leads torch astray
            raise
        refused = _refused_name(error)
        if refused is not None:
            raise RefusedContents(f"{where} is refused: it contains {refused}. {ADVICE}") from error
        raise UnreadableFile(f"{where} cannot be read: it is truncated or not a checkpoint of fairseq") from error


def _read_safetensors(where: str, map_location: Any) -> Any:
    checkpoint = safetensors_files.read(where)
    if isinstance(map_location, (str, torch.device)):
        checkpoint["model"] = {name: tensor.to(map_location) for name, tensor in checkpoint["model"].items()}
    return checkpoint


def load_checkpoint(file: Any, map_location: Any = "cpu") -> Dict[str, Any]:
    """Read a checkpoint of fairseq, see :func:`load`; raise UnreadableFile also if it contains no model."""
    checkpoint = load(file, map_location)
    if not isinstance(checkpoint, dict) or not isinstance(checkpoint.get("model"), dict):
        where = getattr(file, "name", file)
        raise UnreadableFile(f"{where} is not a checkpoint of fairseq (it has no 'model'); give a file of a --save-dir")
    return checkpoint


def _refused_name(error: Exception) -> Optional[str]:
    """Return the name of the object in a file that torch refused to build or call; None for another error."""
    found = REFUSED.search(str(error)) if isinstance(error, pickle.UnpicklingError) else None
    return found and (found[1] or found[2]).rstrip(".")


def load_data_only() -> None:
    """Make fairseq read every file by :func:`load`."""
    from fairseq import checkpoint_utils

    for name in LOADING_MODULES:
        module: Any = importlib.import_module(f"fairseq.{name}")
        module.torch = ModuleWith(torch, load=load_checkpoint if module is checkpoint_utils else load)


@around("fairseq.checkpoint_utils", "load_model_ensemble_and_task")
def refuse_code(original: Callable, filenames: Any, *args: Any, **kwargs: Any) -> Any:
    """Name the files of a configuration with code in it."""
    try:
        return original(filenames, *args, **kwargs)
    except UnsafeExpression as error:
        raise RefusedContents(f"{', '.join(map(str, filenames))} is refused: {error}") from error
