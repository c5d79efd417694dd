"""Coefficients of a diagonal state space, whose recurrence is that of the complex EMA."""

import torch
from torch import Tensor

from .coefficients import EMACoefficients, compute_dtype


def state_space_coefficients(
    log_step: Tensor, log_decay: Tensor, frequency: Tensor, projection: Tensor
) -> EMACoefficients:
    """Sample the diagonal system ``h'(t) = A h(t) + x(t)``, ``y(t) = 2 Re(C h(t))`` with a zero-order hold.

    The n-th of M modes has ``A = -exp(log_decay) + i frequency`` and stands for itself and its conjugate. Held inputs
    give ``h_k = exp(step A) h_{k-1} + (exp(step A) - 1) / A x_k``; the factor of the input is moved into the
    projection.

    Args:
        log_step: (D, 1), logarithm of each feature's step, any floating dtype.
        log_decay: (D, M), logarithm of the modes' decay.
        frequency: (D, M), their angle per unit of time.
        projection: (K, M, 2), real and imaginary part of C; K is D, or 2D for a bidirectional system, both directions
            of which have the same modes.

    Returns:
        Coefficients (K, M) in float32 and complex64 (float64 and complex128 for float64 parameters).

    Source: Gu et al., "On the Parameterization and Initialization of Diagonal State Space Models" (NeurIPS 2022), Eq. 2
    and section 3.
    """
    dtype = compute_dtype(log_decay)
    log_step, log_decay, frequency, projection = (
        parameter.to(dtype) for parameter in (log_step, log_decay, frequency, projection)
    )
    modes = torch.complex(-log_decay.exp(), frequency)
    log_decay_of_a_step = modes * log_step.exp()
    held = _expm1(log_decay_of_a_step) / modes
    directions = projection.size(0) // modes.size(0)
    return EMACoefficients(
        log_decay_of_a_step.repeat(directions, 1),
        torch.ones(projection.shape[:2], dtype=dtype, device=projection.device),
        2 * torch.view_as_complex(projection.contiguous()) * held.repeat(directions, 1),
    )


def _expm1(z: Tensor) -> Tensor:
    """``exp(z) - 1`` of complex z without cancellation near zero."""
    growth, half = torch.expm1(z.real), torch.sin(0.5 * z.imag)
    return torch.complex(growth * torch.cos(z.imag) - 2 * half.square(), (growth + 1) * torch.sin(z.imag))
