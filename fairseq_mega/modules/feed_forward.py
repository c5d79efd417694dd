"""The feed-forward sub-layer."""

from torch import Tensor, nn

from fairseq_mega.ops.gate import recomputing

from .activation import get_activation
from .config import MegaLayerConfig
from .dropout import Dropout
from .linear import linear
from .norm import build_norm, norm_for_products


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

    def forward(self, x: Tensor) -> Tensor:
        """Transform (B, L, D) into (B, L, D)."""
        residual = x
        if self.prenorm:
            x = norm_for_products(self.norm, x)
        x = self.hidden_dropout(self.activation(self.fc1(x)))
        x = self.dropout(recomputing(self.fc2, x)) + residual
        return x if self.prenorm else self.norm(x)
