"""One layer of MEGALODON."""

from typing import Optional

import torch
from torch import Tensor, nn

from fairseq_mega.modules.errors import FieldError
from fairseq_mega.modules.layer import PLAIN, LayerContext, LayerOutput
from fairseq_mega.modules.padding import finite_padding
from fairseq_mega.modules.single_steps import by_single_steps, layer_step
from fairseq_mega.modules.state import LayerCache, LayerMemory
from fairseq_mega.ops.dropout import drawing_once
from fairseq_mega.ops.linear import casting_once

from .attention import NormalizedGatedAttention
from .config import MegalodonLayerConfig
from .feed_forward import FeedForward


class MegalodonLayer(nn.Module):
    """Normalised gated attention and a feed-forward sub-layer, both added to the layer's input: the two-hop residual.

    With one hop the feed-forward's output is added to the attention's, as in a Transformer with norms first.

    Args:
        config: shape and regularisation.
        index: of the layer, from 0, which sets the first value of its scale.

    Source: MEGALODON (Ma et al., NeurIPS 2024), section 3.4, Eq. 11 and Figure 3.
    """

    def __init__(self, config: MegalodonLayerConfig, index: int = 0) -> None:
        super().__init__()
        self.attention = NormalizedGatedAttention(config)
        self.feed_forward = FeedForward(config, index)
        self.residual_hops = config.residual_hops

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

        Raises:
            FieldError: in float16.
        """
        refuse_float16(x)
        if context.padding_mask is not None:
            x = finite_padding(x, context.padding_mask)
        cached = None if cache is None else cache.attention
        out = self.attention(x, context, memory, cached, self.feed_forward.norm)
        residual = x if self.residual_hops == 2 else out.hidden
        hidden = self.feed_forward(out.hidden, residual, out.products)
        return LayerOutput(hidden, out.memory, LayerCache(out.cache) if context.return_state else None)


def refuse_float16(x: Tensor) -> None:
    """Raise a FieldError if x, or the autocast around it, is of float16."""
    kind = x.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype
    if torch.float16 in (dtype, x.dtype):
        message = "{field}: MEGALODON's sums over time leave the range of float16; give {bfloat16}, or use float32"
        raise FieldError("float16", message)
