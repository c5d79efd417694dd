"""Whether a checkpoint fits a model, said in the user's words."""

import hashlib
from typing import Dict

import torch
from fairseq.data import Dictionary
from torch import Tensor, nn


def check_state_dict(model: nn.Module, state_dict: Dict[str, Tensor]) -> None:
    """Raise a ValueError if a checkpoint's tensors do not fit the model, saying how they differ."""
    own = model.state_dict()
    if any(".mega_layer." in key for key in state_dict):
        raise ValueError(
            "this checkpoint was written by the published code, whose tensors are named and laid out differently: "
            "convert it with fairseq-mega-convert --input OLD.pt --output NEW.pt"
        )
    missing, foreign = sorted(own.keys() - state_dict.keys()), sorted(state_dict.keys() - own.keys())
    if missing or foreign:
        raise ValueError(
            f"this checkpoint is not of this model: {len(missing)} tensors missing (such as {missing[:2]}), "
            f"{len(foreign)} unknown (such as {foreign[:2]}); check --path / --restore-file, --arch and layer options"
        )
    for key, tensor in own.items():
        if tensor.shape != state_dict[key].shape:
            raise ValueError(
                f"this checkpoint has other dimensions: {key} is {tuple(state_dict[key].shape)} there and "
                f"{tuple(tensor.shape)} here; give the options it was trained with, or another --save-dir"
            )


def add_empty_buffers(model: nn.Module, state_dict: Dict[str, Tensor]) -> None:
    """Add to a checkpoint the buffers of fairseq's adaptive tables, which hold nothing, where it lacks them."""
    for key, tensor in model.state_dict().items():
        if key.endswith(("._float_tensor", ".version")):
            state_dict.setdefault(key, tensor)


def check_dictionary(model: nn.Module, state_dict: Dict[str, Tensor], key: str, symbols: int) -> None:
    """Raise a ValueError if a checkpoint was trained with another dictionary; one that names none gets the model's.

    Args:
        model: with the fingerprint of its dictionary in the buffer ``key``.
        state_dict: of the checkpoint.
        key: name of the buffer.
        symbols: in the model's dictionary.
    """
    own = model.state_dict()[key]
    if not state_dict.setdefault(key, own).equal(own.cpu()):
        raise ValueError(
            f"this checkpoint was trained with another dict.txt than that of the data folder ({symbols} symbols): give "
            f"the folder it was trained on, or binarise the text with its dictionary (fairseq-preprocess --srcdict)"
        )


def fingerprint(dictionary: Dictionary) -> Tensor:
    """A number (1,) int64 that differs between dictionaries of different symbols or order."""
    digest = hashlib.sha256("\n".join(dictionary.symbols).encode("utf-8", "surrogateescape")).digest()
    return torch.tensor([int.from_bytes(digest[:7], "big")])
