"""Checkpoints as safetensors: MODEL.safetensors holds the tensors, MODEL.json beside it the configuration
and the data card.

Neither file can hold code. Optimiser states and other values that are not plain are omitted. A digest of the
configuration in both files distinguishes two checkpoints.
"""

import argparse
import contextlib
import hashlib
import json
import os
import pathlib
from typing import Any, Dict, Iterator, List, Tuple

import safetensors.torch
import torch

from .card import EARLIER, KEY
from .safe_globals import UnreadableFile
from .saving import written_whole

SUFFIX = ".safetensors"
SHARED = "shared_tensors"  # in the JSON: name of a tensor -> the name that the file holds it under
DIGEST = "configuration"  # in the JSON and the header of the tensors: digest of the configuration as it was written


def names_safetensors(path: Any) -> bool:
    """Return whether a path ends with .safetensors."""
    return os.fspath(path).endswith(SUFFIX)


def configuration_file(path: Any) -> str:
    """Return the path of the JSON file beside a file of safetensors."""
    return os.fspath(path)[: -len(SUFFIX)] + ".json"


def no_history() -> List[Dict[str, Any]]:
    """Return the history of a model that was trained elsewhere: fairseq reads the last entry."""
    return [{"optimizer_name": "", "lr_scheduler_state": {}, "num_updates": 0}]


def read_tensors(path: Any) -> Dict[str, torch.Tensor]:
    """Return the tensors by name in any file of safetensors, on the CPU.

    Raises:
        OSError: if it is missing.
        UnreadableFile: if it is damaged, or of another kind.
    """
    with _errors_naming(path):
        return safetensors.torch.load_file(os.fspath(path))


def read_texts(path: Any) -> Dict[str, str]:
    """Return the texts in the header of a file of safetensors; raises as :func:`read_tensors`."""
    with _errors_naming(path), safetensors.safe_open(os.fspath(path), framework="pt") as file:
        return file.metadata() or {}


@contextlib.contextmanager
def _errors_naming(path: Any) -> Iterator[None]:
    """Turn errors of the contents into UnreadableFile."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise UnreadableFile(f"{path} is not a file of safetensors ({reason})") from error


def read(path: Any) -> Dict[str, Any]:
    """Return the checkpoint in a file of safetensors and its JSON, with tensors on the CPU.

    Raises:
        OSError: if one of the files is missing.
        UnreadableFile: if one of them is damaged, or of another kind or checkpoint.
    """
    where = configuration_file(path)
    with _errors_naming(f"{path} with {where}"):
        with open(where, encoding="utf-8") as file:
            checkpoint = json.load(file)
        shared, digest = checkpoint.pop(SHARED, {}), checkpoint.pop(DIGEST, None)
        tensors, expected = read_tensors(path), read_texts(path).get(DIGEST, digest)
        tensors.update({name: tensors[owner] for name, owner in shared.items()})
    if digest != expected:
        raise UnreadableFile(
            f"{path} and {where} belong to different checkpoints: copy both files of a checkpoint together"
        )
    if isinstance(checkpoint.get("args"), dict):
        checkpoint["args"] = argparse.Namespace(**checkpoint["args"])
    return {"optimizer_history": no_history(), "extra_state": {}, **checkpoint, "model": tensors}


def write(checkpoint: Dict[str, Any], path: Any) -> None:
    """Write the tensors of a model, its configuration and its data card; each file appears whole or not at all.

    Raises:
        OSError: if a file cannot be written.
        TypeError: if the configuration contains more than plain values.
    """
    tensors, shared = _without_copies(checkpoint["model"])
    plain = {key: checkpoint[key] for key in ("args", "cfg", KEY, EARLIER) if checkpoint.get(key) is not None}
    plain[SHARED] = shared
    digest = hashlib.sha256(json.dumps(plain, default=_plain).encode()).hexdigest()
    text = json.dumps({**plain, DIGEST: digest}, default=_plain, indent=1)
    with written_whole(pathlib.Path(configuration_file(path))) as description:
        description.write_text(text + "\n", encoding="utf-8")
        write_tensors(tensors, path, {"format": "pt", DIGEST: digest})


def write_tensors(tensors: Dict[str, torch.Tensor], path: Any, texts: Dict[str, str]) -> None:
    """Write contiguous tensors that share no memory; the file appears whole or not at all.

    Args:
        tensors: by name.
        path: of the file.
        texts: go into its header.

    Raises:
        OSError: if it cannot be written.
    """
    try:
        with written_whole(pathlib.Path(path)) as partial:
            safetensors.torch.save_file(tensors, partial, metadata=texts)
            partial.chmod(0o644)
    except safetensors.SafetensorError as error:
        raise OSError(f"{path} cannot be written ({error})") from error


def _without_copies(model: Dict[str, torch.Tensor]) -> Tuple[Dict[str, torch.Tensor], Dict[str, str]]:
    """Return the tensors without copies of shared memory, as the format requires, and the names of the shared ones."""
    owners: Dict[Any, str] = {}
    tensors, shared = {}, {}
    for name, tensor in model.items():
        place = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        owner = owners.setdefault(place, name) if tensor.numel() else name
        if owner != name:
            shared[name] = owner
            continue
        whole = tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
        tensors[name] = tensor.contiguous() if whole else tensor.clone(memory_format=torch.contiguous_format)
    return tensors, shared


def _plain(value: Any) -> Any:
    """Return a namespace or a configuration of omegaconf as a dictionary."""
    if isinstance(value, argparse.Namespace):
        return vars(value)
    if hasattr(value, "items"):
        return dict(value.items())
    if hasattr(value, "__iter__"):
        return list(value)
    raise TypeError(f"{type(value).__name__} {value!r}")
