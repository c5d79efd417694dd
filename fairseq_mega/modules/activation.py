"""Activation functions by the names of the command line."""

from functools import partial
from typing import Callable, Dict

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_mega.ops.activation import silu

from .errors import FieldError

Activation = Callable[[Tensor], Tensor]

ACTIVATIONS: Dict[str, Activation] = {
    "silu": silu,
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_accurate": partial(F.gelu, approximate="tanh"),  # fairseq's older name, from before the exact one
    "gelu_fast": partial(F.gelu, approximate="tanh"),  # fairseq's older name of the same function
    "tanh": torch.tanh,
    "linear": lambda x: x,
}


def get_activation(name: str) -> Activation:
    """Return the activation function of a name.

    Raises:
        FieldError: for an unknown name.
    """
    if name not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        raise FieldError(
            "activation", "unknown activation {name!r} ({field}): choose from {known}", name=name, known=known
        )
    return ACTIVATIONS[name]
