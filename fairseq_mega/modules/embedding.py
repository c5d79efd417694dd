"""Token embeddings, the input of MEGA's first layer."""

import math
from functools import partial
from typing import Optional

from torch import Tensor, nn

from .drawn import PlainLinear, Table, draw_tokens
from .dropout import Dropout
from .norm import build_norm
from .padding import zero_padding


class TokenEmbedding(nn.Module):
    """Look tokens up, scale by sqrt(D), optionally normalise, drop out, and set padding to zero.

    Args:
        tokens: embedding table (V, d), which may be shared with other modules, or another module from tokens (B, L) to
            (B, L, d) with an attribute ``embedding_dim``, d.
        dropout: probability of dropping an element.
        scale: multiply by sqrt(D).
        norm: kind of norm on the embeddings, None for none.
        dim: width D of the result; a table of another width d is followed by a linear map. Default: d.
        types: rows of a table of token types (types, D), 0 for none. Every token is of the first type; the other rows
            are kept for models that were trained with them elsewhere.

    Source: the published code; no positions are added, see the relative biases.
    """

    def __init__(
        self,
        tokens: nn.Module,
        dropout: float,
        scale: bool = True,
        norm: Optional[str] = None,
        dim: Optional[int] = None,
        types: int = 0,
    ) -> None:
        super().__init__()
        table_dim = int(tokens.embedding_dim)  # type: ignore[arg-type]
        dim = dim or table_dim
        self.tokens = tokens
        self.projection: Optional[PlainLinear] = None
        if table_dim != dim:
            self.projection = PlainLinear(table_dim, dim, bias=False).drawn(nn.init.xavier_uniform_)
        self.scale = math.sqrt(dim) if scale else 1.0
        self.types: Optional[Table] = None
        if types:
            self.types = Table(types, dim).drawn(partial(nn.init.normal_, std=0.02))
        self.norm = build_norm(norm, dim) if norm is not None else None
        self.dropout = Dropout(dropout)

    @property
    def table(self) -> Tensor:
        """Return the plain embedding table (V, d)."""
        assert isinstance(self.tokens, nn.Embedding)
        return self.tokens.weight

    def forward(
        self, tokens: Tensor, padding_mask: Optional[Tensor] = None, positions: Optional[Tensor] = None
    ) -> Tensor:
        """Embed tokens (B, L) long as (B, L, D); ``padding_mask`` (B, L) bool, True = padding, positions unused."""
        x = self.scale * self.tokens(tokens)
        if self.projection is not None:
            x = self.projection(x)
        if self.types is not None:
            x = x + self.types.weight[0]
        if self.norm is not None:
            x = self.norm(x)
        return zero_padding(self.dropout(x), padding_mask)


def token_table(size: int, embed_dim: int, padding_idx: int) -> Table:
    """Embedding table (size, embed_dim) drawn from Normal(0, d^-0.5), with a zero row for padding."""
    normal = partial(nn.init.normal_, std=embed_dim**-0.5)
    return Table(size, embed_dim, padding_idx=padding_idx).drawn(partial(draw_tokens, draw=normal, padding=padding_idx))
