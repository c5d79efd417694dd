"""A layer of a Llama-style Transformer, to compare MEGALODON's with."""

from dataclasses import dataclass
from typing import Optional

from torch import Tensor, nn

from fairseq_mega.ops.attention import multi_head_attention
from fairseq_mega.ops.common.recompute import recomputing
from fairseq_mega.ops.linear import after_silu, in_parts
from fairseq_mega.ops.rotary import rotate

from .attention_cache import cached
from .dropout import Dropout
from .errors import check_layer, check_multiple
from .layer import PLAIN, LayerContext, LayerOutput
from .linear import linear
from .megalodon.norms import at_least_float32
from .norm import RMSNorm
from .padding import finite_padding
from .parameter_cache import ParameterCache
from .state import LayerCache, LayerMemory


@dataclass(frozen=True)
class LlamaLayerConfig:
    """Shape and regularisation of a Llama-style layer.

    Raises:
        FieldError: where a value is out of range; the message names field, value and remedy.
    """

    embed_dim: int
    heads: int
    ffn_dim: int
    rope_base: float = 10000.0
    attention_window: Optional[int] = None
    dropout: float = 0.0
    attention_dropout: float = 0.0

    def __post_init__(self) -> None:
        check_layer(self, dict.fromkeys(("embed_dim", "heads", "ffn_dim"), 1))
        check_multiple("embed_dim", self.embed_dim, 2 * self.heads, "2 x {heads}")


class LlamaLayer(nn.Module):
    """Causal attention with rotary positions and a SwiGLU feed-forward network, RMS norms before both, no biases.

    The layer's only state is its keys and values.

    Args:
        config: shape and regularisation.

    Source: Llama 2 (Touvron et al., 2023), section 2.2, the baseline of MEGALODON's section 4.
    """

    def __init__(self, config: LlamaLayerConfig) -> None:
        super().__init__()
        d, f = config.embed_dim, config.ffn_dim
        self.ffn_widths = (f, f)
        self.heads, self.rope_base, self.window = config.heads, config.rope_base, config.attention_window
        self.attention_norm, self.feed_forward_norm = RMSNorm(d), RMSNorm(d)
        self.input_proj = linear(d, 3 * d, bias=False)  # query, key, value
        self.output_proj = linear(d, d, bias=False)
        self.gate_proj = linear(d, 2 * f, bias=False)  # gate, inner
        self.inner_proj = linear(f, d, bias=False)
        self.dropout = Dropout(config.dropout)
        self.attention_dropout = Dropout(config.attention_dropout)

    def forward(
        self,
        x: Tensor,
        context: LayerContext = PLAIN,
        memory: Optional[LayerMemory] = None,
        cache: Optional[LayerCache] = None,
    ) -> LayerOutput:
        """Apply the layer, see :class:`fairseq_mega.modules.layer.Layer`."""
        mask = context.padding_mask
        if mask is not None:
            x = finite_padding(x, mask)
        past = None if cache is None else cache.attention
        first = 0 if past is None else len(past.keys)
        both, value = in_parts(self.input_proj, self.attention_norm(x), (2 * x.size(-1), x.size(-1)))
        turned = rotate(at_least_float32(both).unflatten(-1, (2, self.heads, -1)), first, -1, self.rope_base)
        query, key = turned.flatten(-2).to(value.dtype).unbind(-2)
        if past is not None or context.return_state:
            past = cached(past, key, value, mask, ParameterCache(), None, context.given_up)
            key, value, mask = past.keys.steps, past.values.steps, past.padding_mask
        x = x + self.dropout(self.output_proj(self.attend(query, key, value, mask)))
        gate, inner = recomputing(in_parts, self.gate_proj, self.feed_forward_norm(x), self.ffn_widths)
        x = x + self.dropout(after_silu(self.inner_proj, gate, inner))
        return LayerOutput(x, None, None if past is None or not context.return_state else LayerCache(past))

    def attend(self, query: Tensor, key: Tensor, value: Tensor, padding_mask: Optional[Tensor]) -> Tensor:
        """Return the attention of the last steps (B, L, d) to all steps (B, n, d)."""
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (query, key, value))
        out = multi_head_attention(
            query,
            key,
            value,
            causal=True,
            padding_mask=padding_mask,
            dropout=self.attention_dropout.rate,
            window=self.window,
        )
        return out.transpose(1, 2).flatten(-2)
