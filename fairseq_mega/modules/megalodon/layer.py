"""One layer of MEGALODON."""

from typing import List, Optional, Sequence, Tuple

import torch
from torch import Tensor, nn

from fairseq_mega.modules.errors import FieldError
from fairseq_mega.modules.layer import PLAIN, JoinedStep, Layer, LayerContext, LayerOutput, grown_caches, past_of
from fairseq_mega.modules.padding import finite_padding
from fairseq_mega.modules.state import LayerCache, LayerMemory
from fairseq_mega.ops.decoding import StepFunctions, normalized_layer_tensors

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
        out = self.attention(x, context, memory, None if cache is None else cache.attention)
        residual = x if self.residual_hops == 2 else out.hidden
        prepared = None if out.cache is None else out.cache.prepared
        hidden = self.feed_forward(out.hidden, residual, context.steps, prepared)
        return LayerOutput(hidden, out.memory, LayerCache(out.cache) if context.return_state else None)

    def single_step(self, functions: StepFunctions, dtype: torch.dtype) -> Optional[Layer]:
        """Return a function for the single steps of a stream, see :func:`fairseq_mega.modules.layer.single_step_of`."""
        attention = self.attention.single_step(functions, dtype)
        feed_forward = self.feed_forward.single_step(functions, dtype)
        if attention is None or feed_forward is None or dtype == torch.float16:
            return None

        def step(
            x: Tensor,
            context: LayerContext = PLAIN,
            memory: Optional[LayerMemory] = None,
            cache: Optional[LayerCache] = None,
        ) -> LayerOutput:
            if cache is None or not cache.attention.suits_step_of(x.dtype):
                return self(x, context, memory, cache)
            x = x[:, 0]
            hidden, memory, attention_cache = attention(x, memory, cache.attention, cache.attention.prepared)
            assert attention_cache is not None
            hidden = feed_forward(hidden, x if self.residual_hops == 2 else hidden)
            return LayerOutput(hidden.unsqueeze(1), memory, LayerCache(attention_cache))

        return step

    @staticmethod
    def joined_step(
        layers: Sequence["MegalodonLayer"], functions: StepFunctions, dtype: torch.dtype
    ) -> Optional[JoinedStep]:
        """Return all layers as a function of single steps, see :func:`fairseq_mega.modules.layer.steps_of`.

        None if no kernel computes all layers.
        """
        run, tensors, rms = functions.normalized_layers, [], set()
        first, hops = layers[0].attention, {layer.residual_hops for layer in layers}
        settings = {(layer.attention.chunk_size, layer.attention.rope_base) for layer in layers}
        if run is None or len(settings) != 1 or len(hops) != 1:
            return None
        for layer in layers:
            weights = layer.attention.step_weights()
            own = None if weights is None else normalized_layer_tensors(weights, layer.feed_forward.step_weights())
            if weights is None or own is None:
                return None
            tensors += own
            rms.add(weights.coefficients.rms)
            scale = weights.scale  # of one shape in all layers
        if len(rms) != 1:
            return None
        kinds = (rms.pop(), hops.pop() == 2)
        norms = [layer.attention.norm for layer in layers]

        def step(
            x: Tensor, memories: Sequence[Optional[LayerMemory]], caches: Sequence[LayerCache]
        ) -> Tuple[Tensor, List[LayerMemory], List[LayerCache]]:
            statistics = [
                norm.fresh_statistics(x) if memory is None or memory.norm is None else memory.norm
                for norm, memory in zip(norms, memories)
            ]
            past = past_of(memories, caches)
            turns = first.turns(len(past.keys[0]), scale)
            x, statistics, emas, keys, values = run(x, tensors, *kinds, statistics, turns, *past, first.kept_steps)
            return x, [*map(LayerMemory, emas, statistics)], grown_caches(caches, keys, values, first.chunk_size)

        return step


def refuse_float16(x: Tensor) -> None:
    """Raise a FieldError if x, or the autocast around it, is of float16."""
    kind = x.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype
    if torch.float16 in (dtype, x.dtype):
        message = "{field}: MEGALODON's sums over time leave the range of float16; give {bfloat16}, or use float32"
        raise FieldError("float16", message)
