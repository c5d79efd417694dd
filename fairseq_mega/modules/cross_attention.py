"""Gated attention from a decoder to the encoder's output."""

from typing import Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_mega.ops.attention import Options, attention, attention_weights
from fairseq_mega.ops.gate import gated_residual
from fairseq_mega.ops.linear import after_silu, in_parts

from .activation import ACTIVATIONS
from .config import MegaLayerConfig
from .dropout import Dropout
from .linear import linear
from .norm import build_norm
from .padding import finite_padding
from .parameter_cache import ParameterCache
from .relative_bias import build_relative_bias
from .state import CrossAttentionCache


class GatedCrossAttention(nn.Module):
    """Single-head attention over the source, gated as MEGA's self-attention, with no EMA.

    The relative bias relates absolute target and source positions: ``b[t, j] = w[P - 1 + j - t]``.

    Args:
        config: shape and regularisation of the layer.

    Source: the published code (the paper's encoder-decoder is described in MEGA, section 4.4, without equations).
    """

    def __init__(self, config: MegaLayerConfig) -> None:
        super().__init__()
        d, z = config.embed_dim, config.z_dim
        self.widths = (d, z)
        self.function = config.attention_function
        self.attention_dropout = Dropout(config.attention_dropout)
        self.prenorm = config.normalize_before
        self.activation = ACTIVATIONS[config.activation]
        self.norm = build_norm(config.norm, d)
        self.query_proj = linear(d, 2 * d + z)  # update gate, reset gate, query
        self.key_proj = linear(d, z)
        self.value_proj = linear(d, d)
        self.output_proj = linear(d, d)
        self.relative_bias = build_relative_bias(
            config.relative_bias,
            config.cross_max_positions,
            z,
            "cross_max_positions",
        )
        self.dropout = Dropout(config.dropout, config.feature_dropout)
        self.hidden_dropout = Dropout(config.hidden_dropout, config.feature_dropout)

    def start(self, encoder_out: Optional[Tensor], padding_mask: Optional[Tensor]) -> CrossAttentionCache:
        """Project the encoder's output once for all steps of a decoding.

        Args:
            encoder_out: (B, S, D), of any value where padded.
            padding_mask: (B, S) bool, True = padding.
        """
        assert encoder_out is not None, "a layer with cross attention requires the encoder's output"
        if padding_mask is not None:
            encoder_out = finite_padding(encoder_out, padding_mask)
        value = self.hidden_dropout(self.activation(self.value_proj(encoder_out)))
        return CrossAttentionCache(self.key_proj(encoder_out), value, padding_mask, 0, ParameterCache())

    def forward(
        self,
        x: Tensor,
        source: CrossAttentionCache,
        need_weights: bool = False,
        products: Optional[Tensor] = None,
    ) -> Tuple[Tensor, CrossAttentionCache, Optional[Tensor]]:
        """Apply the sub-layer, residual and norm included, to the next L target positions.

        Args:
            x: (B, L, D).
            source: the result of :meth:`start`, or the cache that an earlier call returned.
            need_weights: also return the attention weights (which then exist in full).
            products: (B, L, D), the input of products if the sub-layer before made it.

        Returns:
            (B, L, D), the cache after these positions, and the weights (B, L, S) or None.

        Raises:
            FieldError: if the simple relative bias does not cover the source or target length.
        """
        d, z = self.widths
        residual = x
        if products is not None:
            x = products
        elif self.prenorm:
            x = self.norm(x)
        update, reset, query = in_parts(self.query_proj, x, (d, d, z))
        if query.size(1) != 1:
            source = source._replace(prepared=ParameterCache())
        key, value, padding_mask, step, prepared = source
        key, value = key.to(query.dtype), value.to(query.dtype)  # the cache may be older than the parameters' type
        bias = self.relative_bias(query.size(1), key.size(1), step, prepared)
        dropout = self.attention_dropout.rate
        weights = None
        if need_weights:
            weights = attention_weights(query, key, Options(self.function, bias, padding_mask=padding_mask))
            attended = torch.matmul(F.dropout(weights, dropout), value)
        else:
            attended = attention(
                query, key, value, function=self.function, bias=bias, padding_mask=padding_mask, dropout=dropout
            )
        projected = after_silu(self.output_proj, reset, attended)
        candidate = self.activation(projected)
        if self.dropout.feature:
            out = gated_residual(residual, update, self.dropout(candidate))
        else:
            out = gated_residual(residual, update, candidate, dropout=self.dropout.rate)
        if not self.prenorm:
            out = self.norm(out)
        return out, source._replace(step=step + x.size(1)), weights
