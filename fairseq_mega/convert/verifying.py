"""Verify a conversion: convert every tensor back.

A conversion changes names, axes of length one and the order of rows, but no value: converting back must restore every
tensor bit for bit. The package's tests compare the outputs of both codes' formulas.
"""

from typing import Any, Dict, List

import torch
from torch import Tensor

from .megalodon import TABLES
from .megalodon_names import FREQUENCIES, PRIORS
from .options import flat_options
from .tensors import OUR_BUFFERS, is_ignored

PAD = 1  # in every dictionary of fairseq


def verify(given: Dict[str, Any], back: Dict[str, Any], ours: Dict[str, Any], where: str) -> List[str]:
    """Compare a checkpoint with itself after a conversion and back.

    Args:
        given: the checkpoint before the conversion.
        back: the converted checkpoint, converted back to the layout of ``given``.
        ours: the checkpoint in this package's layout: ``given`` or its conversion.
        where: option and path of ``given``, for messages.

    Returns:
        Lines for the user: each comparison with its result.

    Raises:
        ValueError: if a weight is not finite, or a tensor is not restored.
    """
    damaged = [name for name, tensor in given["model"].items() if not bool(tensor.isfinite().all())]
    if damaged:
        raise ValueError(f"{where}: --verify: {_listed(damaged)} has values that are not finite: the file is damaged")
    changed = changed_tensors(given, back)
    if changed:
        raise ValueError(f"{where}: --verify: converting back would change {_listed(changed)}; nothing was written")
    return [
        f"names and shapes: the {len(weights_of(ours))} weights in this package's layout fit the options",
        f"way back: the {len(weights_of(given))} weights of the input are equal, bit for bit",
    ]


def changed_tensors(given: Dict[str, Any], back: Dict[str, Any]) -> List[str]:
    """Return the names of tensors that converting back changed, lost or added.

    Buffers without information and copies of shared tables may be missing on either side.
    """
    before, after = weights_of(given), weights_of(back)
    lost = [name for name in before if name not in after]
    made = [name for name, tensor in after.items() if name not in before and not _is_copy(tensor, after)]
    common = [name for name in before if name in after]
    return sorted([*lost, *made, *(name for name in common if not _same(before[name], after[name]))])


def weights_of(checkpoint: Dict[str, Any]) -> Dict[str, Tensor]:
    """Return the tensors without buffers, and without the rows of padding if padding has no probability."""
    model = {
        name: tensor
        for name, tensor in checkpoint["model"].items()
        if not (is_ignored(name) or OUR_BUFFERS.search(name) or name.endswith((*PRIORS, FREQUENCIES)))
    }
    if flat_options(checkpoint).get("no_padding_logit"):
        model.update({name: torch.cat([model[name][:PAD], model[name][PAD + 1 :]]) for name in TABLES if name in model})
    return model


def _is_copy(tensor: Tensor, model: Dict[str, Tensor]) -> bool:
    return sum(tensor is other for other in model.values()) > 1


def _same(tensor: Tensor, other: Tensor) -> bool:
    return tensor.dtype == other.dtype and torch.equal(tensor, other)


def _listed(names: List[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
