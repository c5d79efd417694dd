"""The damped EMA as an FFT convolution, and what a carried state adds to it."""

from typing import Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .coefficients import EMACoefficients, ema_kernel, power_tables


def ema_fft(
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
    length, width = x.size(1), x.size(2)
    reach = length if truncation is None else min(truncation, length)
    kernel = ema_kernel(coefficients, reach)  # (K, reach)
    if not bidirectional:
        size = fast_fft_size(length + reach - 1)
        return _ring_convolution(x, kernel, size)
    past, future = kernel[:width], kernel[width:]
    size = fast_fft_size(length + reach)
    if not shift:
        past, future = torch.cat([past[:, :1] + future[:, :1], past[:, 1:]], dim=-1), future[:, 1:]
    gap = size - past.size(-1) - future.size(-1)
    return _ring_convolution(x, torch.cat([F.pad(past, (0, gap)), future.flip(-1)], dim=-1), size)


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


def state_response(coefficients: EMACoefficients, state: Tensor, length: int) -> Tensor:
    """What the state before the first step adds to the outputs: ``y[t] += sum_n projection q^(t+1) state``.

    Args:
        coefficients: each (D, N).
        state: (B, D, N).
        length: number of outputs.

    Returns:
        (B, length, D).
    """
    coarse, fine = power_tables(coefficients.log_decay, length)  # (D, N, A), (D, N, T)
    weight = state * coefficients.projection * torch.exp(coefficients.log_decay)
    blocks = (weight.unsqueeze(-1) * coarse).transpose(2, 3)  # (B, D, A, N)
    return torch.matmul(blocks, fine).flatten(2)[..., :length].transpose(1, 2)


def final_state(x: Tensor, coefficients: EMACoefficients, state: Optional[Tensor]) -> Tensor:
    """State after the last step: ``q^L state + sum_t expansion q^(L-1-t) x[t]``, (B, D, N).

    Args:
        x: (B, L, D), zero where padded, L at least 1.
        coefficients: each (D, N).
        state: (B, D, N) before the first step, or None for zeros.
    """
    batch, length, width = x.shape
    coarse, fine = power_tables(coefficients.log_decay, length)
    blocks, block = coarse.size(-1), fine.size(-1)
    padded = F.pad(x.transpose(1, 2), (blocks * block - length, 0)).view(batch, width, blocks, block)
    partial = torch.matmul(padded, fine.flip(-1).transpose(1, 2))  # (B, D, A, N)
    new = torch.einsum("bdan,dna->bdn", partial, coarse.flip(-1)) * coefficients.expansion
    if state is not None:
        new = new + torch.exp(coefficients.log_decay * length) * state
    return new


def ema_fft_streaming(x: Tensor, coefficients: EMACoefficients, state: Optional[Tensor]) -> Tuple[Tensor, Tensor]:
    """Causal, untruncated EMA of the next L steps of a stream: outputs (B, L, D) and the state after them."""
    y = ema_fft(x, coefficients)
    if state is not None:
        y = y + state_response(coefficients, state, x.size(1))
    return y, final_state(x, coefficients, state)
