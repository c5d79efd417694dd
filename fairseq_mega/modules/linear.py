"""Linear maps with MEGA's initialisation and products."""

from torch import nn

from fairseq_mega.ops.linear import linear_map


class Linear(nn.Linear):
    """PyTorch's linear map, multiplied by :func:`fairseq_mega.ops.linear.linear`."""

    forward = linear_map


def linear(in_features: int, out_features: int, bias: bool = True) -> Linear:
    """Linear map with weights from Normal(0, 0.02), and a bias of zeros if it has one."""
    layer = Linear(in_features, out_features, bias)
    nn.init.normal_(layer.weight, std=0.02)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer
