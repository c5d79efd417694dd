"""Linear maps as MEGA initialises them."""

from torch import nn


def linear(in_features: int, out_features: int) -> nn.Linear:
    """Linear map with weights from Normal(0, 0.02) and zero bias."""
    layer = nn.Linear(in_features, out_features)
    nn.init.normal_(layer.weight, std=0.02)
    nn.init.zeros_(layer.bias)
    return layer
