"""Inputs of classifiers: real numbers as vectors, and learned positions for models that need them."""

import math
from functools import partial
from typing import Optional

import torch
from torch import Tensor, nn

from .drawn import Table
from .dropout import Dropout
from .embedding import TokenEmbedding
from .errors import FieldError
from .padding import zero_padding


class RealNumberEmbedding(nn.Module):
    """Vectors ``x w + b`` of real numbers x (pixels, samples), w from Normal(0, 1) and b from Normal(0, 0.1).

    Args:
        embed_dim: d, width of w and b.

    Source: the published code's "linear" embedding of the Long Range Arena's images and of raw speech.
    """

    def __init__(self, embed_dim: int) -> None:
        super().__init__()
        self.embedding_dim = embed_dim
        self.weight = nn.Parameter(torch.empty(embed_dim))
        self.bias = nn.Parameter(torch.empty(embed_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new parameters."""
        nn.init.normal_(self.weight)
        nn.init.normal_(self.bias, std=0.1)

    def forward(self, numbers: Tensor) -> Tensor:
        """Map numbers (B, L) or (B, L, 1) to (B, L, d)."""
        if numbers.dim() == 2:
            numbers = numbers.unsqueeze(-1)
        return torch.addcmul(self.bias, numbers.to(self.weight.dtype), self.weight)

    def extra_repr(self) -> str:
        return f"embed_dim={self.embedding_dim}"


def character_table(size: int, embed_dim: int) -> Table:
    """Embedding table (size, embed_dim) drawn from Normal(0, d^-0.5), the row of padding too, as published."""
    return Table(size, embed_dim).drawn(partial(nn.init.normal_, std=embed_dim**-0.5))


def sinusoids(positions: int, dim: int) -> Tensor:
    """Return vectors (positions, dim): sines in the first half, cosines in the second, of wavelengths 2 pi to 20,000
    pi.

    Raises:
        FieldError: if dim is odd.

    Source: Vaswani et al., 2017, 3.5.
    """
    if dim % 2:
        raise FieldError("embed_dim", "{field} {value} is odd: sinusoidal positions require an even width", value=dim)
    rates = torch.exp(torch.arange(dim // 2) * (-math.log(10000.0) / (dim // 2)))
    angles = torch.arange(positions).unsqueeze(1) * rates
    return torch.cat([angles.sin(), angles.cos()], dim=1)


class PositionedEmbedding(nn.Module):
    """Embeddings plus a vector per position, then dropout.

    Args:
        tokens: table from (B, L) to (B, L, d), see :class:`fairseq_mega.modules.embedding.TokenEmbedding`.
        max_positions: rows of the table of positions, drawn from Normal(0, d^-0.5).
        dropout: probability of dropping an element.
        sinusoidal: sinusoids instead of the table; embeddings are then scaled by sqrt(d).
    """

    def __init__(self, tokens: nn.Module, max_positions: int, dropout: float, sinusoidal: bool = False) -> None:
        super().__init__()
        self.content = TokenEmbedding(tokens, 0.0, scale=sinusoidal)
        dim = int(tokens.embedding_dim)  # type: ignore[arg-type]
        self.positions: Tensor
        if sinusoidal:
            self.register_buffer("positions", torch.empty(max_positions, dim), persistent=False)
        else:
            self.positions = nn.Parameter(torch.empty(max_positions, dim))
        self.reset_parameters()
        self.dropout = Dropout(dropout)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw or compute the vectors of the positions."""
        count, dim = self.positions.shape
        if isinstance(self.positions, nn.Parameter):
            nn.init.normal_(self.positions, std=dim**-0.5)
        else:
            self.positions.copy_(sinusoids(count, dim))

    def forward(
        self, inputs: Tensor, padding_mask: Optional[Tensor] = None, positions: Optional[Tensor] = None
    ) -> Tensor:
        """Embed inputs (B, L), right padded, as (B, L, d).

        Args:
            inputs: (B, L).
            padding_mask: (B, L) bool, True = padding.
            positions: (B, L) long, of each input; None: 0, 1, ... in each row.

        Raises:
            FieldError: if a position exceeds the table of positions.
        """
        longest = self.positions.size(0)
        length = inputs.size(1) if positions is None else int(positions.max()) + 1
        if length > longest:
            raise FieldError(
                "max_positions",
                "a sequence of {length} positions is longer than the {longest} that have a vector ({field}): shorten "
                "the input or train with a larger {field}",
                length=length,
                longest=longest,
            )
        x = self.content(inputs) + (self.positions[:length] if positions is None else self.positions[positions])
        return zero_padding(self.dropout(x), padding_mask)
