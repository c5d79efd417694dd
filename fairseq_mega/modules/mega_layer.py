"""One layer of a MEGA encoder or decoder."""

from typing import Optional

import torch
from torch import Tensor, nn

from fairseq_mega.ops.decoding import StepFunctions

from .config import MegaLayerConfig
from .cross_attention import GatedCrossAttention
from .feed_forward import NormalizedFeedForward
from .gated_attention import GatedAttention
from .layer import PLAIN, Layer, LayerContext, LayerOutput
from .state import LayerCache, LayerMemory


class MegaLayer(nn.Module):
    """Gated attention, in decoders of encoder-decoder models gated cross attention, and a feed-forward sub-layer.

    Args:
        config: shape of the layer; ``cross_attention`` adds the cross attention, ``ffn_dim`` 0 leaves the
            feed-forward sub-layer out.

    Source: MEGA (Ma et al., ICLR 2023), section 3.3 and Figure 2.
    """

    def __init__(self, config: MegaLayerConfig) -> None:
        super().__init__()
        self.attention = GatedAttention(config)
        self.cross_attention = GatedCrossAttention(config) if config.cross_attention else None
        self.feed_forward = NormalizedFeedForward(config) if config.ffn_dim > 0 else None

    def forward(
        self,
        x: Tensor,
        context: LayerContext = PLAIN,
        memory: Optional[LayerMemory] = None,
        cache: Optional[LayerCache] = None,
    ) -> LayerOutput:
        """Apply the layer, see :class:`fairseq_mega.modules.layer.Layer`.

        A layer with cross attention needs ``context.encoder_out``, unless the cache holds its projection.
        """
        x, memory, attention_cache = self.attention(x, context, memory, None if cache is None else cache.attention)
        source, weights = None if cache is None else cache.cross_attention, None
        if self.cross_attention is not None:
            if source is None:
                source = self.cross_attention.start(context.encoder_out, context.encoder_padding_mask)
            x, source, weights = self.cross_attention(x, source, context.need_weights)
        if self.feed_forward is not None:
            x = self.feed_forward(x, context.steps, None if attention_cache is None else attention_cache.prepared)
        return LayerOutput(x, memory, LayerCache(attention_cache, source) if context.return_state else None, weights)

    def single_step(self, functions: StepFunctions, dtype: torch.dtype) -> Optional[Layer]:
        """Return a function for the single steps of a stream, see :func:`fairseq_mega.modules.layer.single_step_of`."""
        cross_attention = self.cross_attention
        if self.feed_forward is None:
            return None
        attention = self.attention.single_step(functions, dtype)
        feed_forward = self.feed_forward.single_step(functions, dtype)
        if attention is None or feed_forward is None:
            return None

        def step(
            x: Tensor,
            context: LayerContext = PLAIN,
            memory: Optional[LayerMemory] = None,
            cache: Optional[LayerCache] = None,
        ) -> LayerOutput:
            if cache is None or cache.attention.padding_mask is not None:
                return self(x, context, memory, cache)
            source, weights, prepared = cache.cross_attention, None, cache.attention.prepared
            hidden, memory, attention_cache = attention(x[:, 0], memory, cache.attention, prepared)
            assert attention_cache is not None
            if cross_attention is not None:
                x, source, weights = cross_attention(hidden.unsqueeze(1), source, context.need_weights)
                hidden = x[:, 0]
            return LayerOutput(feed_forward(hidden).unsqueeze(1), memory, LayerCache(attention_cache, source), weights)

        return step
