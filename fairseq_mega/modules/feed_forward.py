"""The feed-forward sub-layer."""

from typing import Optional, Tuple

from torch import Tensor, nn

from fairseq_mega.ops.activation import silu
from fairseq_mega.ops.common.recompute import recomputing
from fairseq_mega.ops.decoding import FeedForwardWeights
from fairseq_mega.ops.linear import after_silu, bias_apart

from .activation import ACTIVATIONS
from .config import MegaLayerConfig
from .dropout import Dropout, StochasticDepth, dropped_addition
from .linear import linear
from .norm import add_and_norm, build_norm, norm_for_products, step_norm, type_of_products
from .packed_linear import step_maps


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
        self.activation = ACTIVATIONS[config.activation]
        self.fc1 = linear(config.embed_dim, config.ffn_dim)
        self.fc2 = linear(config.ffn_dim, config.embed_dim)
        self.dropout = Dropout(config.dropout, config.feature_dropout)
        self.hidden_dropout = Dropout(config.activation_dropout, config.feature_dropout)
        self.stochastic_depth = StochasticDepth(config.stochastic_depth)

    def forward(self, x: Tensor, products: Optional[Tensor] = None) -> Tuple[Tensor, Optional[Tensor]]:
        """Transform (B, L, D) into (B, L, D); the second tensors are the input of this and of the next sub-layer's
        products, if made in a kernel before.
        """
        residual = x
        if products is not None:
            x = products
        elif self.prenorm:
            x = norm_for_products(self.norm, x)
        fc2, bias = bias_apart(self.fc2, x)
        if self.activation is silu:
            fc1, inner_bias = bias_apart(self.fc1, x)
            x = after_silu(fc2, recomputing(fc1, x), None, self.hidden_dropout, inner_bias)
        else:
            x = recomputing(fc2, self.hidden_dropout(self.activation(recomputing(self.fc1, x))))
        added = dropped_addition(x, None, self.dropout, self.stochastic_depth, bias)
        return add_and_norm(residual, added, None if self.prenorm else self.norm, dtype=type_of_products(residual))

    def step_weights(self) -> Optional[FeedForwardWeights]:
        """Return the parameters for the kernel of single steps; None where operators compute them."""
        maps = step_maps(self.fc1, self.fc2)
        if maps is None or self.activation is not silu:
            return None
        if self.dropout.active or self.hidden_dropout.active or self.stochastic_depth.active:
            return None
        if not self.prenorm:
            return FeedForwardWeights(None, None, maps, normalize_after=self.norm)
        return FeedForwardWeights(self.norm, step_norm(self.norm), maps)
