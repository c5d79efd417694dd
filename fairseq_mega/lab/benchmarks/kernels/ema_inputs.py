"""Parameters and inputs of the EMA's measurements."""

from typing import Callable

import torch
from torch import Tensor

from fairseq_mega.lab.benchmarks.kernels.operators import Inputs, normal
from fairseq_mega.lab.benchmarks.kernels.shapes import Shape
from fairseq_mega.ops.ema import EMACoefficients, complex_ema_coefficients
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
    """Coefficients of MEGALODON's complex EMA."""
    return complex_ema_coefficients(*(inputs[name] for name in ("alpha", "delta", "theta", "gamma")))
