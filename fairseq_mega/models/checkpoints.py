"""Fit the tensors of older checkpoints to a model; PyTorch compares names and shapes."""

from typing import Dict

from torch import Tensor, nn

FINGERPRINTS = ("dictionary_fingerprint", "dictionary_fingerprints")
EMPTY = ("._float_tensor", ".version")  # ends of buffers of fairseq's adaptive tables, which hold no information


def upgrade_tensors(model: nn.Module, state_dict: Dict[str, Tensor], *optional: str) -> None:
    """Change the tensors of an older checkpoint in place to those of the model.

    Fingerprints of dictionaries, which old checkpoints store as tensors, are removed. Tensors that a whole checkpoint
    lacked in some version are added. Nothing is added to a part of a checkpoint, in which other tensors are missing.

    Args:
        model, state_dict: the model and the tensors.
        optional: names of buffers that may be missing; they keep the model's values.
    """
    for key in [key for key in state_dict if key.endswith(FINGERPRINTS)]:
        del state_dict[key]
    own = model.state_dict()
    known = {key: tensor for key, tensor in own.items() if key.endswith(EMPTY) or key in optional}
    missing = own.keys() - state_dict.keys()
    if missing <= known.keys():
        state_dict.update({key: known[key] for key in missing})
