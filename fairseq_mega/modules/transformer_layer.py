"""A bidirectional Transformer layer, to compare MEGA's with."""

from dataclasses import dataclass
from typing import Optional

from torch import Tensor, nn

from fairseq_mega.ops.attention import multi_head_attention

from .activation import ACTIVATIONS
from .documents import Documents
from .dropout import Dropout
from .errors import FieldError, check_layer
from .layer import PLAIN, LayerContext, LayerOutput
from .linear import linear
from .norm import NORMS, build_norm
from .padding import finite_padding
from .state import LayerCache, LayerMemory


@dataclass(frozen=True)
class TransformerLayerConfig:
    """Shape and regularisation of a Transformer layer.

    Raises:
        FieldError: where a value is out of range; the message names field, value and remedy.
    """

    embed_dim: int
    heads: int
    ffn_dim: int
    activation: str = "gelu"
    norm: str = "layernorm"
    normalize_before: bool = True
    dropout: float = 0.0
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0

    def __post_init__(self) -> None:
        least = dict.fromkeys(("embed_dim", "heads", "ffn_dim"), 1)
        check_layer(self, least, norm=NORMS, activation=tuple(ACTIVATIONS))
        if self.embed_dim % self.heads != 0:
            message = "{heads} {value} does not divide {embed_dim} {width}: give a divisor"
            raise FieldError("heads", message, value=self.heads, width=self.embed_dim)


class TransformerLayer(nn.Module):
    """Multi-head softmax attention and a feed-forward network, each with residual and norm.

    Args:
        config: shape and regularisation.

    Source: Vaswani et al., 2017. The initialisation is MEGA's: Normal(0, 0.02), zero biases.
    """

    def __init__(self, config: TransformerLayerConfig) -> None:
        super().__init__()
        d = config.embed_dim
        self.heads = config.heads
        self.prenorm = config.normalize_before
        self.attention_dropout = Dropout(config.attention_dropout)
        self.activation = ACTIVATIONS[config.activation]
        self.attention_norm, self.feed_forward_norm = build_norm(config.norm, d), build_norm(config.norm, d)
        self.input_proj = linear(d, 3 * d)  # query, key, value
        self.output_proj = linear(d, d)
        self.fc1, self.fc2 = linear(d, config.ffn_dim), linear(config.ffn_dim, d)
        self.dropout = Dropout(config.dropout)
        self.activation_dropout = Dropout(config.activation_dropout)

    def forward(
        self,
        x: Tensor,
        context: LayerContext = PLAIN,
        memory: Optional[LayerMemory] = None,
        cache: Optional[LayerCache] = None,
    ) -> LayerOutput:
        """Apply the layer, see :class:`fairseq_mega.modules.layer.Layer`; it is bidirectional and has no memory."""
        padding_mask = context.padding_mask
        if padding_mask is not None:
            x = finite_padding(x, padding_mask)
        read = self.attention_norm(x) if self.prenorm else x
        attended = self.dropout(self.attend(read, padding_mask, context.documents))
        x = x + attended if self.prenorm else self.attention_norm(x + attended)
        inner = self.fc1(self.feed_forward_norm(x) if self.prenorm else x)
        inner = self.dropout(self.fc2(self.activation_dropout(self.activation(inner))))
        return LayerOutput(x + inner if self.prenorm else self.feed_forward_norm(x + inner))

    def attend(self, x: Tensor, padding_mask: Optional[Tensor], documents: Optional[Documents] = None) -> Tensor:
        """Multi-head self-attention of (B, L, d), within documents where there are any."""
        query, key, value = self.input_proj(x).chunk(3, dim=-1)
        if documents is None:
            attended = self._attend(query, key, value, padding_mask)
        else:
            attended = documents.attend(self._attend, query, key, value, padding_mask, -1)
        return self.output_proj(attended)

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, padding_mask: Optional[Tensor]) -> Tensor:
        """Attention of all heads side by side, each (B, L, d)."""
        query, key, value = (x.unflatten(-1, (self.heads, -1)).transpose(1, 2) for x in (query, key, value))
        dropout = self.attention_dropout.rate
        out = multi_head_attention(query, key, value, padding_mask=padding_mask, dropout=dropout)  # (B, H, L, d / H)
        return out.transpose(1, 2).flatten(-2)
