"""Initial values of MEGALODON's matrices."""

import math
from functools import partial
from typing import Sequence

from torch import Tensor, nn

from fairseq_mega.modules.linear import Linear

INIT_MODES = ("he", "bert", "xavier", "gaussian", "none")


def truncated_normal_(weight: Tensor, std: float) -> None:
    """Draw from Normal(0, std), cut at three standard deviations."""
    nn.init.trunc_normal_(weight, std=std, a=-3 * std, b=3 * std)


def initialize_(weight: Tensor, mode: str) -> None:
    """Draw a matrix (outputs, inputs).

    Args:
        weight: the matrix to fill.
        mode: "he": Normal with standard deviation 1/sqrt(3 inputs); "bert": Normal(0, 0.02); "xavier": uniform within
            sqrt(6 / (inputs + outputs)); "gaussian": truncated Normal(0, 1/sqrt(inputs)); "none": unchanged.

    Source: the published code, whose "gaussian" has this deviation for tables and deviation 1 for matrices.
    """
    if mode == "he":
        nn.init.kaiming_normal_(weight, a=math.sqrt(5))
    elif mode == "bert":
        nn.init.normal_(weight, std=0.02)
    elif mode == "xavier":
        nn.init.xavier_uniform_(weight)
    elif mode == "gaussian":
        truncated_normal_(weight, weight.size(1) ** -0.5)


def matrix(inputs: int, *outputs: int, mode: str, bias: bool) -> Linear:
    """Return one linear map in place of several with the same input, each drawn separately; zero biases.

    Args:
        inputs: width of the input.
        outputs: widths of the outputs, side by side.
        mode: see :func:`initialize_`.
        bias: whether the map has one.
    """
    return Linear(inputs, sum(outputs), bias=bias).drawn(partial(initialize_parts_, outputs=outputs, mode=mode))


def initialize_parts_(weight: Tensor, outputs: Sequence[int], mode: str) -> None:
    """Draw matrices of ``outputs`` rows, which lie one below the other in ``weight``, see :func:`initialize_`."""
    for part in weight.data.split(outputs):
        initialize_(part, mode)
