"""The feed-forward sub-layer of MEGALODON."""

from typing import Optional

import torch
from torch import Tensor, nn

from fairseq_mega.modules.dropout import Dropout, StochasticDepth, dropped_addition
from fairseq_mega.modules.norm import type_of_products
from fairseq_mega.modules.packed_linear import step_maps
from fairseq_mega.ops.common.recompute import recomputing
from fairseq_mega.ops.decoding import FeedForwardWeights
from fairseq_mega.ops.linear import after_silu, in_parts

from .config import MegalodonLayerConfig
from .initialization import matrix
from .norms import LayerNorm

FIRST_SCALE = 0.1  # of layer 0; each layer begins with half the one before


class FeedForward(nn.Module):
    """``residual + scale * W2 (SiLU(W1 N) * W3 N)`` with N the layer norm of the input; without the gate W3 if plain.

    Args:
        config: shape and regularisation of the layer.
        index: of the layer, from 0, which sets the first value of its scale.

    Source: MEGALODON (Ma et al., NeurIPS 2024), section 3.4; SwiGLU: Shazeer, 2020.
    """

    def __init__(self, config: MegalodonLayerConfig, index: int) -> None:
        super().__init__()
        d, f = config.embed_dim, config.ffn_dim
        self.widths = (f, f) if config.swiglu else (f,)
        self.norm = LayerNorm(d, config.norm_affine)
        self.input_proj = matrix(d, *self.widths, mode=config.init_mode, bias=False)
        self.output_proj = matrix(f, d, mode=config.init_mode, bias=False)
        self.first_scale = FIRST_SCALE * 0.5**index
        self.scale: Optional[nn.Parameter]
        self.register_parameter("scale", nn.Parameter(torch.empty(d)) if config.layer_scale else None)
        self.reset_parameters()
        self.dropout = Dropout(config.dropout)
        self.hidden_dropout = Dropout(config.hidden_dropout)
        self.stochastic_depth = StochasticDepth(config.stochastic_depth)

    def reset_parameters(self) -> None:
        """Set the scale to its first value."""
        if self.scale is not None:
            nn.init.constant_(self.scale, self.first_scale)

    def forward(self, x: Tensor, residual: Tensor, products: Optional[Tensor] = None) -> Tensor:
        """Transform x (B, L, D), whose norm is ``products`` if the attention made it; add ``residual`` (B, L, D)."""
        normed = self.norm(x, type_of_products(x)) if products is None else products
        inner, *gate = recomputing(in_parts, self.input_proj, normed, self.widths)
        out = after_silu(self.output_proj, inner, gate[0] if gate else None, self.hidden_dropout)
        if self.scale is None:
            return dropped_addition(out, None, self.dropout, self.stochastic_depth).to(residual)
        return torch.addcmul(residual, self.scale, self.stochastic_depth(self.dropout(out)))

    def step_weights(self) -> Optional[FeedForwardWeights]:
        """Return the parameters for the kernel of single steps; None where operators compute them."""
        norm, maps = self.norm.of_step(), step_maps(self.input_proj, self.output_proj)
        if norm is None or maps is None:
            return None
        if self.dropout.active or self.hidden_dropout.active or self.stochastic_depth.active:
            return None
        return FeedForwardWeights(self.norm, norm, maps, self.scale)
