"""Head that maps hidden states to logits of the tokens at the same positions."""

from typing import Optional

import torch
from torch import Tensor, nn

from .drawn import Table
from .linear import linear


class TokenHead(nn.Module):
    """``W tanh(H x + b) + c``, or ``W x + c`` without a hidden layer.

    Args:
        dim: width d of the hidden states.
        vocab_size: number of tokens V.
        hidden: with the hidden layer H (d, d).
        table: embeddings (V, d) shared as W; None: W is a separate parameter.

    Source: the head of transformers' former MegaForMaskedLM; all own matrices Normal(0, 0.02), biases 0.
    """

    def __init__(self, dim: int, vocab_size: int, hidden: bool, table: Optional[Table] = None) -> None:
        super().__init__()
        self.hidden = linear(dim, dim) if hidden else None
        self.output = linear(dim, vocab_size)
        self.shared = [] if table is None else [table]  # a list: the table is not a part of the head
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Share the table, which ``to_empty`` parts from the output."""
        for table in self.shared:
            self.output.weight, self.output.draw = table.weight, table.draw

    def forward(self, x: Tensor) -> Tensor:
        """Map hidden states (..., d) to logits (..., V)."""
        return self.output(x if self.hidden is None else torch.tanh(self.hidden(x)))
