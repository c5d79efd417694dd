"""One layer of a MEGA encoder or decoder."""

from itertools import chain
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch
from torch import Tensor, nn

from fairseq_mega.ops.decoding import StepFunctions, Tensors, are_of_a_gated_layer, gated_layer_tensors

from .config import MegaLayerConfig
from .cross_attention import GatedCrossAttention
from .feed_forward import NormalizedFeedForward
from .gated_attention import GatedAttention
from .layer import PLAIN, JoinedStep, Layer, LayerContext, LayerOutput, grown_caches, past_of
from .state import LayerCache, LayerMemory


class MegaLayer(nn.Module):
    """Gated attention, in decoders of encoder-decoder models gated cross attention, and a feed-forward sub-layer.

    Args:
        config: shape of the layer; ``cross_attention`` adds the cross attention, ``ffn_dim`` 0 omits the feed-forward
            sub-layer.

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

        A layer with cross attention requires ``context.encoder_out``, unless the cache contains its projection.
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
            if cache is None or not cache.attention.suits_step_of(x.dtype):
                return self(x, context, memory, cache)
            source, weights, prepared = cache.cross_attention, None, cache.attention.prepared
            hidden, memory, attention_cache = attention(x[:, 0], memory, cache.attention, prepared)
            assert attention_cache is not None
            if cross_attention is not None:
                x, source, weights = cross_attention(hidden.unsqueeze(1), source, context.need_weights)
                hidden = x[:, 0]
            return LayerOutput(feed_forward(hidden).unsqueeze(1), memory, LayerCache(attention_cache, source), weights)

        return step

    @staticmethod
    def joined_step(
        layers: Sequence["MegaLayer"], functions: StepFunctions, dtype: torch.dtype
    ) -> Optional[JoinedStep]:
        """Return all layers as a function of single steps, see :func:`fairseq_mega.modules.layer.steps_of`.

        None if no kernel computes all layers: with cross attention, without a feed-forward sub-layer, and where norms
        are not layer norms or follow their sub-layers.
        """
        run, attentions, inner = functions.gated_layers, [], []
        first = layers[0].attention
        settings = {(layer.attention.function, layer.attention.chunk_size, layer.cross_attention) for layer in layers}
        if run is None or settings != {(first.function, first.chunk_size, None)}:
            return None
        for layer in layers:
            weights = layer.attention.step_weights(dtype)
            more = None if layer.feed_forward is None else layer.feed_forward.step_weights()
            if weights is None or more is None or not are_of_a_gated_layer(weights, more):
                return None
            attentions.append(weights)
            inner.append(more)
        biases: List[Any] = [layer.attention.relative_bias for layer in layers]
        kept: Dict[int, Tensors] = {}  # tensors of all layers, by the reach of their biases

        def tensors(reach: int) -> Tensors:
            if reach not in kept:
                kept.clear()
                tables = [bias.table(reach) for bias in biases]
                kept[reach] = [*chain(*map(gated_layer_tensors, attentions, tables, inner))]
            return kept[reach]

        def step(
            x: Tensor, memories: Sequence[Optional[LayerMemory]], caches: Sequence[LayerCache]
        ) -> Tuple[Tensor, List[LayerMemory], List[LayerCache]]:
            past = past_of(memories, caches)
            length = len(past.keys[0]) + 1
            reach = max(bias.reach(length) for bias in biases)
            x, emas, keys, values = run(x, tensors(reach), reach - length, *past, first.function, first.kept_steps)
            return x, [*map(LayerMemory, emas)], grown_caches(caches, keys, values, first.chunk_size)

        return step
