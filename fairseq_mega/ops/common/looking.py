"""The question whether Python code may depend on the values of a tensor."""

import torch
from torch import Tensor

from .transforms import is_transformed


def may_look(tensor: Tensor) -> bool:
    """Return whether a condition on the values of a tensor is possible and cheap.

    On a GPU the condition would synchronize, a compiled graph would be divided by it, and transforms of torch.func
    (vmap) refuse it.
    """
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling() and not is_transformed()
