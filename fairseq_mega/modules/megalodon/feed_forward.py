"""The feed-forward sub-layer of MEGALODON."""

from typing import Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_mega.modules.dropout import Dropout
from fairseq_mega.modules.packed_linear import step_maps
from fairseq_mega.ops.step import step_functions

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
        self.gated = config.swiglu
        self.norm = LayerNorm(d, config.norm_affine)
        self.input_proj = matrix(d, *([f, f] if self.gated else [f]), mode=config.init_mode, bias=False)
        self.output_proj = matrix(f, d, mode=config.init_mode, bias=False)
        self.scale: Optional[nn.Parameter]
        scale = nn.Parameter(torch.full((d,), FIRST_SCALE * 0.5**index)) if config.layer_scale else None
        self.register_parameter("scale", scale)
        self.dropout = Dropout(config.dropout)
        self.hidden_dropout = Dropout(config.hidden_dropout)

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        """Transform x (B, L, D) and add ``residual`` (B, L, D)."""
        stepped = self._step(x, residual) if x.size(1) == 1 and not self.training else None
        if stepped is not None:
            return stepped
        inner = self.input_proj(self.norm(x))
        if self.gated:
            inner, gate = inner.chunk(2, dim=-1)
            inner = F.silu(inner) * gate
        else:
            inner = F.silu(inner)
        out = self.dropout(self.output_proj(self.hidden_dropout(inner)))
        return residual + out if self.scale is None else torch.addcmul(residual, self.scale, out)

    def _step(self, x: Tensor, residual: Tensor) -> Optional[Tensor]:
        """The sum (B, 1, D) for one step of decoding by one kernel, None where it is left to the operators."""
        if self.dropout.active or self.hidden_dropout.active:
            return None
        step, norm = step_functions(x), self.norm.of_step()
        fused = None if step is None or norm is None else step.normalized_feed_forward
        maps = None if fused is None else step_maps(x, self.input_proj, self.output_proj)
        if fused is None or maps is None:
            return None
        return fused(x[:, 0], residual[:, 0], norm, maps, self.scale).unsqueeze(1)
