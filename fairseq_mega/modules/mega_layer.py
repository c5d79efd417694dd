"""One layer of a MEGA encoder or decoder."""

from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from .config import MegaLayerConfig
from .cross_attention import GatedCrossAttention
from .feed_forward import NormalizedFeedForward
from .gated_attention import GatedAttention
from .state import LayerState


class LayerOutput(NamedTuple):
    """What a layer returns."""

    hidden: Tensor  # (B, L, D)
    state: Optional[LayerState]
    cross_weights: Optional[Tensor]  # (B, L, S)


class MegaLayer(nn.Module):
    """Gated attention, in decoders of encoder-decoder models gated cross attention, and a feed-forward sub-layer.

    Args:
        config: shape of the layer; ``cross_attention`` adds the cross attention, ``ffn_dim`` 0 leaves the
            feed-forward sub-layer out.

    Source: MEGA (Ma et al., ICLR 2023), section 3.3 and Figure 2.
    """

    def __init__(self, config: MegaLayerConfig) -> None:
        super().__init__()
        self.checkpoint_activations = config.checkpoint_activations
        self.attention = GatedAttention(config)
        self.cross_attention = GatedCrossAttention(config) if config.cross_attention else None
        self.feed_forward = NormalizedFeedForward(config) if config.ffn_dim > 0 else None

    def forward(self, x: Tensor, **inputs: Any) -> LayerOutput:
        """Apply the layer as :meth:`compute` does, recomputing it in the backward pass if so configured."""
        if self.checkpoint_activations and self.training and torch.is_grad_enabled():
            return checkpoint(self.compute, x, use_reentrant=False, **inputs)
        return self.compute(x, **inputs)

    def compute(
        self,
        x: Tensor,
        *,
        padding_mask: Optional[Tensor] = None,
        encoder_out: Optional[Tensor] = None,
        encoder_padding_mask: Optional[Tensor] = None,
        state: Optional[LayerState] = None,
        return_state: bool = False,
        need_weights: bool = False,
    ) -> LayerOutput:
        """Apply the layer.

        Args:
            x: (B, L, D).
            padding_mask: (B, L) bool, True = padding.
            encoder_out: (B, S, D), needed by a layer with cross attention unless ``state`` holds its projection.
            encoder_padding_mask: (B, S) bool, True = padding.
            state: memory of the steps before x; causal layers only.
            return_state: also return the memory after the last step.
            need_weights: also return the cross-attention weights.
        """
        x, attention_state = self.attention(
            x,
            padding_mask=padding_mask,
            state=None if state is None else state.attention,
            return_state=return_state,
        )
        cross_state, weights = None, None
        if self.cross_attention is not None:
            cross_state = None if state is None else state.cross_attention
            if cross_state is None:
                assert encoder_out is not None, "a layer with cross attention needs the encoder's output"
                cross_state = self.cross_attention.start(encoder_out, encoder_padding_mask)
            x, cross_state, weights = self.cross_attention(x, cross_state, need_weights)
        if self.feed_forward is not None:
            x = self.feed_forward(x)
        new_state = LayerState(attention_state, cross_state) if attention_state is not None else None
        return LayerOutput(x, new_state, weights)
