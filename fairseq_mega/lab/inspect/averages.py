"""The learned moving averages of a model: kernels and half-lives."""

import math
import re
from typing import Dict, List, NamedTuple

import torch
from torch import Tensor

from fairseq_mega.convert.options import IMAGES, kind_of
from fairseq_mega.ops.ema import EMACoefficients, complex_ema_coefficients, ema_coefficients
from fairseq_mega.ops.ema.coefficients import ema_kernel

EMA = re.compile(r"(?P<layer>.*layers\.\d+)\.attention\.ema\.alpha$")
NO_DECAY = -1e-12  # a logarithm for dimensions that forget nothing


class Average(NamedTuple):
    """The moving average of one layer."""

    layer: str  # such as "encoder layer 1", counted from 1
    past: Tensor  # (d, length), weights of the inputs at distance 0, 1, ... back
    future: Tensor  # the same ahead; (0, length) for a causal one
    half_lives: Tensor  # (K N,) steps after which half of an input is left, of every dimension
    periods: Tensor  # (K N,) steps of a turn in the complex plane; (0,) for MEGA's, which do not turn


def averages_of(model: Dict[str, Tensor], length: int) -> List[Average]:
    """Moving averages of all layers, in order.

    Args:
        model: our names to tensors.
        length: of the kernels.

    Raises:
        ValueError: if the model has none.
    """
    found = []
    for name, alpha in model.items():
        match = EMA.match(name)
        if match is None or alpha.size(1) == 0:
            continue
        prefix = name[: -len("alpha")]
        coefficients = coefficients_of(model, prefix)
        kernel, log_decay = ema_kernel(coefficients, length), coefficients.log_decay
        width = model[f"{prefix}omega"].numel()
        past, future = kernel[:width], kernel[width:]
        periods = torch.empty(0)
        if log_decay.is_complex() or kind_of(model) == IMAGES:  # their second direction leaves the present out
            future = torch.cat([torch.zeros_like(future[:, :1]), future[:, :-1]], 1)
        if log_decay.is_complex():
            periods = 2 * math.pi / log_decay.imag.flatten()
        half_lives = math.log(0.5) / log_decay.real.clamp(max=NO_DECAY)
        found.append(Average(title_of(match["layer"]), past, future, half_lives.flatten(), periods))
    if not found:
        raise ValueError("this model has no moving average: the layers of MEGA and MEGALODON have one")
    return found


def coefficients_of(model: Dict[str, Tensor], prefix: str) -> EMACoefficients:
    """Coefficients of the moving average whose parameters' names begin with ``prefix``, MEGA's or MEGALODON's."""
    turns = f"{prefix}theta" in model
    names = ("alpha", "delta", "theta", "gamma") if turns else ("alpha", "delta", "beta", "eta")
    parameters = (model[prefix + name].float() for name in names)
    return complex_ema_coefficients(*parameters) if turns else ema_coefficients(*parameters)


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


HEAD = ["half-lives, steps", "a tenth below", "median", "a tenth above", "mean reach"]


def table(averages: List[Average]) -> List[List[str]]:
    """HEAD, and a row for each layer: name, tenths of the half-lives, mean reach of the features, and where the
    averages turn the median of the periods.
    """
    turning = any(average.periods.numel() for average in averages)
    rows = [HEAD + ["median period"] * turning]
    for average in averages:
        shares = torch.quantile(average.half_lives, torch.tensor([0.1, 0.5, 0.9])).tolist()
        period = [f"{average.periods.median():.1f}"] * turning
        rows.append([average.layer, *(f"{share:.1f}" for share in shares), f"{reaches(average).mean():.1f}", *period])
    return rows
