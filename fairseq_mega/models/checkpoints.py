"""Check that a checkpoint fits a model, with errors that name the user's options."""

from typing import Dict

import torch
from torch import Tensor, nn

from fairseq_mega.compat.checkpoints.loading import check_layout
from fairseq_mega.compat.checkpoints.names import is_fingerprint
from fairseq_mega.modules.megalodon.norms import ScaledNorm, TimestepNorm


def check_state_dict(model: nn.Module, state_dict: Dict[str, Tensor]) -> None:
    """Raise a ValueError that names the difference if a checkpoint's tensors do not fit the model.

    Fingerprints of dictionaries, which old checkpoints store as tensors, are removed from ``state_dict``.
    """
    own = model.state_dict()
    for key in filter(is_fingerprint, list(state_dict)):
        del state_dict[key]
    check_layout(state_dict, "this checkpoint")
    missing, foreign = sorted(own.keys() - state_dict.keys()), sorted(state_dict.keys() - own.keys())
    if missing or foreign:
        raise ValueError(
            f"this checkpoint belongs to another model: {len(missing)} tensors missing (such as {missing[:2]}), "
            f"{len(foreign)} unknown (such as {foreign[:2]}); check --path / --restore-file, --arch and layer options"
        )
    for key, tensor in own.items():
        if tensor.shape != state_dict[key].shape:
            raise ValueError(
                f"this checkpoint has other dimensions: {key} is {tuple(state_dict[key].shape)} in the checkpoint and "
                f"{tuple(tensor.shape)} in the model; give the options of its training"
            )


def add_empty_buffers(model: nn.Module, state_dict: Dict[str, Tensor]) -> None:
    """Add missing buffers of fairseq's adaptive tables, which hold no information, to a checkpoint."""
    for key, tensor in model.state_dict().items():
        if key.endswith(("._float_tensor", ".version")):
            state_dict.setdefault(key, tensor)


def add_plain_norms(model: nn.Module, state_dict: Dict[str, Tensor]) -> None:
    """Add scale one (stored minus one) and shift zero of norms over time to an old checkpoint without them.

    Before these norms had parameters in every model, models with --no-affine-norm stored none.
    """
    norms = [(name, module) for name, module in model.named_modules() if isinstance(module, ScaledNorm)]
    if all(norm.weight is not None for _, norm in norms):
        return
    for name, norm in norms:
        if isinstance(norm, TimestepNorm):
            parameters = {f"{name}.{key}": parameter for key, parameter in norm.named_parameters()}
            if parameters.keys().isdisjoint(state_dict):
                state_dict.update({key: torch.zeros_like(parameter) for key, parameter in parameters.items()})
