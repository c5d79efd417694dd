"""The damped EMA as a convolution by FFT, PyTorch's or that of the compiled kernels."""

from typing import Any, Optional, Tuple

import torch
from torch import Tensor

from fairseq_mega.ops.fft_conv import fft_convolution, ring_convolution, ring_kernel, ring_size

from .coefficients import EMACoefficients, ema_kernel


def ema_torch_fft(
    x: Tensor,
    coefficients: EMACoefficients,
    *,
    bidirectional: bool = False,
    shift: bool = False,
    truncation: Optional[int] = None,
) -> Tensor:
    """Convolve x with the EMA's kernel by one FFT over time.

    Both directions of a bidirectional EMA form one kernel on a ring, with the past at 0, 1, 2, ... and the future at
    -0, -1, -2, ... (from -1 on with ``shift``). So the input is transformed once.

    Args:
        x: (B, L, D) in float32 or float64, zero where padded.
        coefficients: each (D, N), or (2D, N) if bidirectional.
        bidirectional: add the future to the past.
        shift: exclude the current position from the future part.
        truncation: reach of the kernel, None for all of L.

    Returns:
        (B, L, D).
    """
    past, future = two_sided_kernel(
        coefficients, x.size(1), bidirectional=bidirectional, shift=shift, truncation=truncation
    )
    return fft_convolution(x, past, future)


def ema_native_fft(x: Tensor, coefficients: EMACoefficients, **directions: Any) -> Tensor:
    """Convolve by the compiled kernels; arguments and result as :func:`ema_torch_fft`.

    x may be float32, bfloat16 or float16, up to 16384 steps; the coefficients are float32 or complex64.
    """
    length = x.size(1)
    past, future = two_sided_kernel(coefficients, length, **directions)
    return ring_convolution(x, ring_kernel(past, future, ring_size(length)))


def two_sided_kernel(
    coefficients: EMACoefficients,
    length: int,
    *,
    bidirectional: bool = False,
    shift: bool = False,
    truncation: Optional[int] = None,
) -> Tuple[Tensor, Optional[Tensor]]:
    """The EMA's kernel at lags 0, 1, 2, ... (D, reach), and, if bidirectional, at lags -1, -2, ... (D, <= reach)."""
    kernel = ema_kernel(coefficients, length if truncation is None else min(truncation, length))  # (K, reach)
    if not bidirectional:
        return kernel, None
    width = kernel.size(0) // 2
    past, future = kernel[:width], kernel[width:]
    if not shift:
        past, future = torch.cat([past[:, :1] + future[:, :1], past[:, 1:]], dim=-1), future[:, 1:]
    return past, future
