"""The damped EMA as an FFT convolution."""

from typing import Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

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

    Both directions of a bidirectional EMA are one kernel on a ring: the past at 0, 1, 2, ..., the future at
    -0, -1, -2, ... (from -1 on with ``shift``), so that they cost one transform of the input.

    Args:
        x: (B, L, D) in float32 or float64, zero where padded.
        coefficients: each (D, N), or (2D, N) if bidirectional.
        bidirectional: add the future to the past.
        shift: leave the current position out of the future part.
        truncation: reach of the kernel, None for all of L.

    Returns:
        (B, L, D).
    """
    length = x.size(1)
    past, future = two_sided_kernel(
        coefficients, length, bidirectional=bidirectional, shift=shift, truncation=truncation
    )
    return fft_convolution(x, past, future)


def two_sided_kernel(
    coefficients: EMACoefficients, length: int, *, bidirectional: bool, shift: bool, truncation: Optional[int]
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


def ring_kernel(past: Tensor, future: Optional[Tensor], size: int) -> Tensor:
    """A kernel laid on a ring: the past at 0, 1, 2, ..., the future at -1, -2, ..., zeros between; (D, size)."""
    if future is None:
        return F.pad(past, (0, size - past.size(-1)))
    gap = size - past.size(-1) - future.size(-1)
    return torch.cat([F.pad(past, (0, gap)), future.flip(-1)], dim=-1)


def fft_convolution(x: Tensor, past: Tensor, future: Optional[Tensor]) -> Tensor:
    """Convolution over time of x (B, L, D) with a kernel at lags 0.. and, unless None, -1.., by torch's FFT."""
    reach = past.size(-1) - 1 if future is None else max(past.size(-1) - 1, future.size(-1))
    size = fast_fft_size(x.size(1) + reach)  # nothing meets on the ring
    return _ring_convolution(x, past if future is None else ring_kernel(past, future, size), size)


def _ring_convolution(x: Tensor, ring: Tensor, size: int) -> Tensor:
    """Cyclic convolution over time of x (B, L, D) with ring (D, <= size), the first L outputs."""
    spectrum = torch.fft.rfft(x.transpose(1, 2), size) * torch.fft.rfft(ring, size)
    return torch.fft.irfft(spectrum, size)[..., : x.size(1)].transpose(1, 2)


def fast_fft_size(minimum: int) -> int:
    """The smallest even size of at least ``minimum`` whose only prime factors are 2, 3 and 5."""
    best = 1 << max(1, (minimum - 1).bit_length())
    for odd in (3, 5, 9, 15, 25, 27, 45, 75, 81, 125):
        candidate = 2 * odd
        while candidate < minimum:
            candidate *= 2
        best = min(best, candidate)
    return best
