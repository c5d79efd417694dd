"""Small parts that every sub-layer uses: linear maps as MEGA initialises them, dropout, activations."""

from functools import partial
from typing import Callable, Dict, Optional, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .errors import FieldError

Activation = Callable[[Tensor], Tensor]

ACTIVATIONS: Dict[str, Activation] = {
    "silu": F.silu,
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_accurate": partial(F.gelu, approximate="tanh"),  # fairseq's name, of the time before the exact one
    "gelu_fast": partial(F.gelu, approximate="tanh"),  # fairseq's older name of the same
    "tanh": torch.tanh,
    "linear": lambda x: x,
}


def get_activation(name: str) -> Activation:
    """Activation function by name.

    Raises:
        FieldError: for an unknown name.
    """
    if name not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        raise FieldError(
            "activation", "unknown activation {name!r} ({field}): choose from {known}", name=name, known=known
        )
    return ACTIVATIONS[name]


def linear(in_features: int, out_features: int) -> nn.Linear:
    """Linear map with weights from Normal(0, 0.02) and zero bias."""
    layer = nn.Linear(in_features, out_features)
    nn.init.normal_(layer.weight, std=0.02)
    nn.init.zeros_(layer.bias)
    return layer


class Dropout(nn.Module):
    """Inverted dropout on (B, L, D): of single elements, or of whole features for all time steps of a sample.

    Args:
        p: probability of dropping, in [0, 1).
        feature: drop features instead of elements.
    """

    def __init__(self, p: float, feature: bool = False) -> None:
        super().__init__()
        self.p = p
        self.feature = feature
        self.retained = False

    @property
    def rate(self) -> float:
        """The probability with which the next call drops."""
        return self.p if self.training or self.retained else 0.0

    @property
    def active(self) -> bool:
        """Whether the next call drops anything."""
        return self.rate > 0.0

    def make_generation_fast_(
        self,
        name: str,
        retain_dropout: bool = False,
        retain_dropout_modules: Optional[Sequence[str]] = None,
        **options: object,
    ) -> None:
        """Drop in evaluation too, if ``retain_dropout`` says so; fairseq calls it before it generates.

        Args:
            name: of this module in the model, such as decoder.layers.0.attention.dropout.
            retain_dropout: whether to.
            retain_dropout_modules: only where the name has one of these parts; None: everywhere.
        """
        chosen = retain_dropout_modules is None or bool(set(retain_dropout_modules) & set(name.split(".")))
        self.retained = retain_dropout and chosen

    def forward(self, x: Tensor) -> Tensor:
        if not self.active:
            return x
        if not self.feature:
            return F.dropout(x, self.p)
        return x * F.dropout(torch.ones_like(x[:, :1]), self.p)

    def extra_repr(self) -> str:
        return f"p={self.p}" + (", feature=True" if self.feature else "")
