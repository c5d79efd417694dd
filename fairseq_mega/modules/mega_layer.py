"""One layer of a MEGA encoder or decoder."""

from typing import Optional

from torch import Tensor, nn

from fairseq_mega.ops.dropout import drawing_once
from fairseq_mega.ops.linear import casting_once

from .config import MegaLayerConfig
from .cross_attention import GatedCrossAttention
from .feed_forward import NormalizedFeedForward
from .gated_attention import GatedAttention
from .layer import PLAIN, LayerContext, LayerOutput
from .single_steps import by_single_steps, layer_step
from .state import LayerCache, LayerMemory


class MegaLayer(nn.Module):
    """Gated attention, in decoders of encoder-decoder models gated cross attention, and a feed-forward sub-layer.

    Args:
        config: shape of the layer; ``cross_attention`` adds the cross attention, ``ffn_dim`` 0 omits the feed-forward
            sub-layer.

    Source: MEGA (Ma et al., ICLR 2023), section 3.3 and Figure 2.
    """

    residual_hops = 1

    def __init__(self, config: MegaLayerConfig) -> None:
        super().__init__()
        self.attention = GatedAttention(config)
        self.cross_attention = GatedCrossAttention(config) if config.cross_attention else None
        self.feed_forward = NormalizedFeedForward(config) if config.ffn_dim > 0 else None

    @by_single_steps(layer_step)
    @drawing_once
    @casting_once
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
        source, weights = None if cache is None else cache.cross_attention, None
        x, memory, attention_cache, products = self.attention(
            x, context, memory, None if cache is None else cache.attention, self._norm_after_attention()
        )
        if self.cross_attention is not None:
            if source is None:
                source = self.cross_attention.start(context.encoder_out, context.encoder_padding_mask)
            x, source, weights = self.cross_attention(x, source, context.need_weights, products)
            products = None
        if self.feed_forward is not None:
            x, products = self.feed_forward(x, products)
        kept = LayerCache(attention_cache, source) if context.return_state else None
        return LayerOutput(x, memory, kept, weights, products)

    def _norm_after_attention(self) -> Optional[nn.Module]:
        """Return the norm of the sub-layer that follows the attention, if there is one."""
        following = self.feed_forward if self.cross_attention is None else self.cross_attention
        return None if following is None else following.norm
