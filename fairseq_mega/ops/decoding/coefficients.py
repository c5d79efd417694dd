"""Coefficients of the EMA as single steps take them."""

from typing import NamedTuple

import torch
from torch import Tensor

from fairseq_mega.ops.ema import EMACoefficients


class StepCoefficients(NamedTuple):
    """Coefficients of a real EMA for single steps, (D, N) each, and of the skip around it.

    The decay is the sum of two numbers, as a long text multiplies by it thousands of times.
    """

    decay_high: Tensor
    decay_low: Tensor
    expansion: Tensor
    projection: Tensor
    omega: Tensor  # (D,), weight of the skip


def step_coefficients(coefficients: EMACoefficients, omega: Tensor) -> StepCoefficients:
    """Coefficients for single steps from those of the recurrence, in their precision (float32 or float64)."""
    dtype = coefficients.log_decay.dtype
    exact = torch.exp(coefficients.log_decay.double())
    high = exact.to(dtype)
    return StepCoefficients(high, (exact - high).to(dtype), *coefficients[1:], omega.detach())
