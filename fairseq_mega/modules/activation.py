"""Activation functions by the names of the command line."""

from functools import partial
from typing import Callable, Dict

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_mega.ops.activation import silu

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
