"""The learned moving averages of a model: kernels and half-lives."""

import math
import re
from typing import Dict, List, NamedTuple

import torch
from torch import Tensor

from fairseq_mega.convert.options import IMAGES, kind_of
from fairseq_mega.lab.runs.text_tables import Table
from fairseq_mega.ops.ema import EMACoefficients, complex_ema_coefficients, ema_coefficients
from fairseq_mega.ops.ema.coefficients import ema_kernel

EMA = re.compile(r"(?P<layer>.*layers\.\d+)\.attention\.ema\.alpha$")
LENGTH = 4096  # of the kernels
NO_DECAY = -1e-12  # a logarithm for dimensions without decay


class Average(NamedTuple):
    """The moving average of one layer."""

    layer: str  # for instance "encoder layer 1", counted from 1
    past: Tensor  # (d, length), weights of the inputs at distance 0, 1, ... back
    future: Tensor  # the same ahead; (0, length) for a causal average
    half_lives: Tensor  # (K N,) steps after which half of an input is left, for every dimension
    periods: Tensor  # (K N,) steps of a turn in the complex plane; (0,) for MEGA's, which do not turn


def averages_of(model: Dict[str, Tensor], length: int = LENGTH) -> List[Average]:
    """Return the moving averages of all layers, in order.

    Args:
        model: tensors by this package's names.
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
        if log_decay.is_complex() or kind_of(model) == IMAGES:  # the second direction excludes the present
            future = torch.cat([torch.zeros_like(future[:, :1]), future[:, :-1]], 1)
        if log_decay.is_complex():
            periods = 2 * math.pi / log_decay.imag.flatten()
        half_lives = math.log(0.5) / log_decay.real.clamp(max=NO_DECAY)
        found.append(Average(title_of(match["layer"]), past, future, half_lives.flatten(), periods))
    if not found:
        raise ValueError("this model has no moving average: give a checkpoint with layers of MEGA or MEGALODON")
    return found


def coefficients_of(model: Dict[str, Tensor], prefix: str) -> EMACoefficients:
    """Return the coefficients of the moving average, MEGA's or MEGALODON's, whose names begin with ``prefix``."""
    turns = f"{prefix}theta" in model
    names = ("alpha", "delta", "theta", "gamma") if turns else ("alpha", "delta", "beta", "eta")
    parameters = (model[prefix + name].float() for name in names)
    return complex_ema_coefficients(*parameters) if turns else ema_coefficients(*parameters)


def title_of(layer: str) -> str:
    """Return the title of a layer: "encoder layer 1" for "encoder.layers.0"."""
    side, _, number = layer.rpartition(".layers.")
    return f"{side.split('.')[-1]} layer {int(number) + 1}"


def reaches(average: Average) -> Tensor:
    """Return the mean distance (d,) of the absolute weights of each feature, past and future together."""
    sides = [side.abs() for side in (average.past, average.future) if side.numel()]
    distance = torch.arange(sides[0].size(1), dtype=sides[0].dtype)
    total = torch.stack([side.sum(1) for side in sides]).sum(0).clamp(min=torch.finfo(distance.dtype).tiny)
    return torch.stack([(side * distance).sum(1) for side in sides]).sum(0) / total


HEAD = ["half-lives, steps", "a tenth below", "median", "a tenth above", "mean reach"]


def table(averages: List[Average]) -> Table:
    """Return a table with a row for each layer: name, tenths of the half-lives, mean reach of the features, and for
    averages that turn the median of the periods.
    """
    turning = any(average.periods.numel() for average in averages)
    rows = []
    for average in averages:
        shares = torch.quantile(average.half_lives, torch.tensor([0.1, 0.5, 0.9])).tolist()
        period = [f"{average.periods.median():.1f}"] * turning
        rows.append([average.layer, *(f"{share:.1f}" for share in shares), f"{reaches(average).mean():.1f}", *period])
    return Table([*HEAD, *["median period"] * turning], rows)
