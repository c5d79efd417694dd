"""Heads that map a sequence of hidden states to the logits of its class."""

from typing import Optional

import torch
from torch import Tensor, nn

from .activation import ACTIVATIONS
from .drawn import PlainLinear
from .dropout import Dropout

POOLINGS = ("mp", "cls")


def sentence_vector(x: Tensor, padding_mask: Optional[Tensor], pooling: str) -> Tensor:
    """Return one vector per sequence: the mean over its true positions ("mp"; 0 without any), or its first position
    ("cls").

    Args:
        x: (B, L, d), zero at padded positions.
        padding_mask: (B, L) bool, True = padding, or None.
        pooling: one of POOLINGS.

    Returns:
        (B, d).
    """
    if pooling == "cls":
        return x[:, 0]
    total = x.sum(dim=1, dtype=torch.promote_types(x.dtype, torch.float32))
    if padding_mask is None:
        return (total / max(x.size(1), 1)).to(x.dtype)
    return (total / (~padding_mask).sum(dim=1, keepdim=True).clamp(min=1)).to(x.dtype)


class ClassifierHead(nn.Module):
    """Hidden layers ``activation(dropout(W x + b))`` and a linear map without bias to the classes.

    Args:
        in_dim: width of the sentence vector, of both documents together in retrieval.
        hidden_dim: width of the hidden layers.
        hidden_layers: their number; 0 for the linear map alone.
        classes: number of classes.
        activation: of the hidden layers.
        dropout: probability of dropping one of their elements.

    Source: MEGA, the published code of the Long Range Arena; all matrices Xavier uniform, biases 0.
    """

    def __init__(
        self, in_dim: int, hidden_dim: int, hidden_layers: int, classes: int, activation: str, dropout: float
    ) -> None:
        super().__init__()
        widths = [in_dim, *[hidden_dim] * hidden_layers]
        self.hidden = nn.ModuleList(PlainLinear(low, high) for low, high in zip(widths, widths[1:]))
        self.output = PlainLinear(widths[-1], classes, bias=False)
        self.activation = ACTIVATIONS[activation]
        self.dropout = Dropout(dropout)
        for layer in [*self.hidden, self.output]:
            assert isinstance(layer, PlainLinear)
            layer.drawn(nn.init.xavier_uniform_)

    def forward(self, x: Tensor) -> Tensor:
        """Map sentence vectors (B, in_dim) to logits (B, classes)."""
        for layer in self.hidden:
            x = self.activation(self.dropout(layer(x)))
        return self.output(x)
