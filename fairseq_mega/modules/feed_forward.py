"""The feed-forward sub-layer."""

from typing import Callable, Optional

import torch
from torch import Tensor, nn

from fairseq_mega.ops.activation import silu
from fairseq_mega.ops.common.recompute import recomputing
from fairseq_mega.ops.decoding import FeedForwardWeights, StepFunctions
from fairseq_mega.ops.linear import after_silu

from .activation import get_activation
from .config import MegaLayerConfig
from .dropout import Dropout, StochasticDepth
from .linear import linear
from .norm import build_norm, norm_for_products, step_norm
from .packed_linear import step_maps
from .parameter_cache import ParameterCache, is_patched


class NormalizedFeedForward(nn.Module):
    """Position-wise two-layer network with residual and one norm, before (pre-norm) or after it.

    Args:
        config: widths, activation, dropout and norm of the layer; ``ffn_dim`` at least 1.

    Source: MEGA (Ma et al., ICLR 2023), section 3.3.
    """

    def __init__(self, config: MegaLayerConfig) -> None:
        super().__init__()
        self.prenorm = config.normalize_before
        self.norm = build_norm(config.norm, config.embed_dim)
        self.activation = get_activation(config.activation)
        self.fc1 = linear(config.embed_dim, config.ffn_dim)
        self.fc2 = linear(config.ffn_dim, config.embed_dim)
        self.dropout = Dropout(config.dropout, config.feature_dropout)
        self.hidden_dropout = Dropout(config.activation_dropout, config.feature_dropout)
        self.stochastic_depth = StochasticDepth(config.stochastic_depth)

    def forward(
        self, x: Tensor, steps: Optional[StepFunctions] = None, prepared: Optional[ParameterCache] = None
    ) -> Tensor:
        """Transform (B, L, D) into (B, L, D).

        Args:
            x: (B, L, D).
            steps: functions for x if it is a single step; None: found by the sub-layer.
            prepared: for the single steps of a stream.
        """
        if not self.training:
            step = (prepared or ParameterCache()).step_of(self, x, steps)
            if step is not None:
                return step(x[:, 0]).unsqueeze(1)
        residual = x
        if self.prenorm:
            x = norm_for_products(self.norm, x)
        x = recomputing(self.fc1, x)
        if self.activation is silu:
            x = after_silu(self.fc2, x, None, self.hidden_dropout)
        else:
            x = recomputing(self.fc2, self.hidden_dropout(self.activation(x)))
        x = self.stochastic_depth(self.dropout(x)) + residual
        return x if self.prenorm else self.norm(x)

    def single_step(self, functions: StepFunctions, dtype: torch.dtype) -> Optional[Callable[[Tensor], Tensor]]:
        """Return the sub-layer as a function of single steps (B, D), computed by one kernel; None if operators compute
        steps.

        The arguments are those of :meth:`fairseq_mega.modules.gated_attention.GatedAttention.single_step`.
        """
        feed_forward, weights = functions.feed_forward, self.step_weights()
        if feed_forward is None or weights is None:
            return None
        norm, maps, _ = weights
        if not self.prenorm:
            return lambda x: self.norm(feed_forward(x, x, None, maps))
        if norm is None:
            return lambda x: feed_forward(self.norm(x), x, None, maps)
        return lambda x: feed_forward(x, x, norm, maps)

    def step_weights(self) -> Optional[FeedForwardWeights]:
        """Return the parameters in the form of the kernels for single steps; None where operators compute steps."""
        maps = step_maps(self.fc1, self.fc2)
        if maps is None or self.activation is not silu or is_patched(self):
            return None
        if self.dropout.active or self.hidden_dropout.active or self.stochastic_depth.active:
            return None
        return FeedForwardWeights(step_norm(self.norm) if self.prenorm else None, maps)
