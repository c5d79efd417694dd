"""Parameters and inputs of the EMA's measurements."""

from typing import Callable

import torch
from torch import Tensor

from fairseq_mega.benchmarks.kernels.operators import Inputs, normal
from fairseq_mega.benchmarks.kernels.shapes import Shape
from fairseq_mega.ops.ema import EMACoefficients
from fairseq_mega.ops.ema.coefficients import compute_dtype


def draw_ema(rows: int) -> Callable[[Shape, torch.Generator], Inputs]:
    """Parameters of an EMA with ``rows`` times D rows, and its input."""

    def draw(shape: Shape, generator: torch.Generator) -> Inputs:
        size = (rows * shape.width, shape.n)
        parameters = {name: normal(generator, *size) for name in ("alpha", "delta", "beta", "eta")}
        return {"x": normal(generator, shape.batch, shape.length, shape.width), **parameters}

    return draw


def draw_complex_ema(shape: Shape, generator: torch.Generator) -> Inputs:
    size = (shape.width, shape.n)
    return {
        "x": normal(generator, shape.batch, shape.length, shape.width),
        "alpha": normal(generator, *size),
        "delta": normal(generator, *size),
        "theta": normal(generator, shape.width, 1),
        "gamma": normal(generator, *size, 2),
    }


def at_least_float32(tensor: Tensor) -> Tensor:
    return tensor.to(compute_dtype(tensor))


def complex_coefficients(inputs: Inputs) -> EMACoefficients:
    """Coefficients of MEGALODON's complex EMA (NeurIPS 2024, section 3.1, in the form of its code)."""
    alpha, delta, theta, gamma = (at_least_float32(inputs[name]) for name in ("alpha", "delta", "theta", "gamma"))
    expansion, n = torch.sigmoid(alpha), alpha.size(1)
    angle = torch.arange(1, n + 1, device=alpha.device, dtype=alpha.dtype) * torch.sigmoid(theta) * (2 * torch.pi / n)
    log_decay = torch.complex(torch.log1p(-expansion * torch.sigmoid(delta)), angle)
    return EMACoefficients(log_decay, expansion, torch.view_as_complex(gamma) * n**-0.5)
