"""The measured operators: their inputs, their paths, and the reference."""

from typing import Callable, Dict, NamedTuple, Optional

import torch
from torch import Tensor

from fairseq_mega.lab.benchmarks.kernels.shapes import Shape

Inputs = Dict[str, Tensor]


class OpPath(NamedTuple):
    """One way to compute an operator."""

    run: Callable[[Inputs, Shape], Tensor]
    needs: Callable[[Shape], int]  # rough peak of memory in bytes, forward and backward
    compiled: bool = False  # needs the extension
    cuda_only: bool = False
    cpu_only: bool = False
    longest: Optional[int] = None  # the most steps that it accepts


class Op(NamedTuple):
    """An operator: its inputs, its paths, and the plain reference that every path must agree with."""

    title: str
    draw: Callable[[Shape, torch.Generator], Inputs]  # float64 on the CPU
    reference: Callable[[Inputs, Shape], Tensor]
    paths: Dict[str, OpPath]
    baseline: str  # the path that other paths are compared with
    # Minimum number of floats read and written, without the parameters.
    forward: Callable[[Shape], int]
    backward: Callable[[Shape], int]
    quadratic: bool = False  # time grows with L squared
    products: Optional[Callable[[Shape], int]] = None  # operations of its matrix products, forward and backward


def normal(generator: torch.Generator, *size: int) -> Tensor:
    """Numbers drawn from the normal distribution, float64."""
    return torch.randn(size, generator=generator, dtype=torch.float64)


def leaves(inputs: Inputs, dtype: torch.dtype, device: torch.device) -> Inputs:
    """Return fresh inputs of the given precision that require gradients."""
    return {name: value.detach().to(device, dtype).clone().requires_grad_() for name, value in inputs.items()}
