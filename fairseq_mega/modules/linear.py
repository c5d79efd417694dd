"""Linear maps with MEGA's initialisation and products."""

from functools import partial

from torch import nn

from fairseq_mega.ops.linear import linear_map

from .drawn import PlainLinear


class Linear(PlainLinear):
    """PyTorch's linear map, multiplied by :func:`fairseq_mega.ops.linear.linear`."""

    forward = linear_map


def linear(in_features: int, out_features: int, bias: bool = True) -> Linear:
    """Linear map with weights from Normal(0, 0.02), and a bias of zeros if it has one."""
    return Linear(in_features, out_features, bias).drawn(partial(nn.init.normal_, std=0.02))
