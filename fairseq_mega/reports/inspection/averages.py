"""The learned moving averages of a model: kernels, and how long an input lasts."""

import math
import re
from typing import Dict, List, NamedTuple

import torch
from torch import Tensor

from fairseq_mega.ops.ema import ema_coefficients
from fairseq_mega.ops.ema.coefficients import ema_kernel

EMA = re.compile(r"(?P<layer>.*layers\.\d+)\.attention\.ema\.eta$")


class Average(NamedTuple):
    """The moving average of one layer."""

    layer: str  # such as "encoder layer 1", counted from 1
    past: Tensor  # (d, length), weights of the inputs at distance 0, 1, ... back
    future: Tensor  # the same ahead; (0, length) for a causal one
    half_lives: Tensor  # (K N,) steps after which half of an input is left, of every dimension


def averages_of(model: Dict[str, Tensor], length: int) -> List[Average]:
    """Moving averages of all layers, in order.

    Args:
        model: our names to tensors.
        length: of the kernels.

    Raises:
        ValueError: if the model has none.
    """
    found = []
    for name, eta in model.items():
        match = EMA.match(name)
        if match is None or eta.size(1) == 0:
            continue
        prefix = name[: -len("eta")]
        parameters = (model[f"{prefix}{part}"].float() for part in ("alpha", "delta", "beta", "eta"))
        coefficients = ema_coefficients(*parameters)
        kernel = ema_kernel(coefficients, length)
        width = model[f"{prefix}omega"].numel()
        half_lives = math.log(0.5) / coefficients.log_decay.clamp(max=-1e-12)
        found.append(Average(title_of(match["layer"]), kernel[:width], kernel[width:], half_lives.flatten()))
    if not found:
        raise ValueError("this model has no moving average: only MEGA's layers have one")
    return found


def title_of(layer: str) -> str:
    """ "encoder.layers.0" as "encoder layer 1"."""
    side, _, number = layer.rpartition(".layers.")
    return f"{side.split('.')[-1]} layer {int(number) + 1}"


def reaches(average: Average) -> Tensor:
    """Mean distance of the absolute weights of each feature, past and future together: (d,)."""
    sides = [side.abs() for side in (average.past, average.future) if side.numel()]
    distance = torch.arange(sides[0].size(1), dtype=sides[0].dtype)
    total = torch.stack([side.sum(1) for side in sides]).sum(0).clamp(min=torch.finfo(distance.dtype).tiny)
    return torch.stack([(side * distance).sum(1) for side in sides]).sum(0) / total


def table(averages: List[Average]) -> List[List[str]]:
    """A row for each layer: name, tenths of the half-lives, mean reach of the features."""
    rows = []
    for average in averages:
        shares = torch.quantile(average.half_lives, torch.tensor([0.1, 0.5, 0.9])).tolist()
        rows.append([average.layer, *(f"{share:.1f}" for share in shares), f"{reaches(average).mean():.1f}"])
    return rows
