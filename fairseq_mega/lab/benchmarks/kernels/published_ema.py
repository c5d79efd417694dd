"""The EMA in the arrangement of the published code, the baseline of its paths."""

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_mega.lab.benchmarks.kernels.ema_inputs import at_least_float32, complex_coefficients
from fairseq_mega.lab.benchmarks.kernels.operators import Inputs
from fairseq_mega.lab.benchmarks.kernels.shapes import Shape


def dxnxl_kernel(log_decay: Tensor, weight: Tensor, length: int) -> Tensor:
    """The EMA's kernel (K, L) from all powers at once, a tensor of K x N x L numbers, as published."""
    steps = torch.arange(length, device=weight.device).to(log_decay.real.dtype)
    powers = torch.exp(log_decay.unsqueeze(-1) * steps)
    kernel = torch.einsum("kn,knl->kl", weight, powers)
    return kernel.real if kernel.is_complex() else kernel


def dxnxl_ema(inputs: Inputs, shape: Shape, bidirectional: bool = False, complex_: bool = False) -> Tensor:
    """The EMA in the arrangement of the published code: the kernel of :func:`dxnxl_kernel`, then an FFT of twice the
    length.

    Bidirectional: the two kernels side by side as one of 2 L - 1 taps, the input with L - 1 zeros before it, and an FFT
    of 2 (2 L - 1) numbers (MEGA, Appendix A and its code; MEGALODON for the complex form).
    """
    if complex_:
        log_decay, expansion, projection = complex_coefficients(inputs)
    else:
        alpha, delta, beta, eta = (at_least_float32(inputs[name]) for name in ("alpha", "delta", "beta", "eta"))
        p, a = torch.sigmoid(alpha), torch.sigmoid(delta)
        log_decay, expansion, projection = torch.log(1 - p * a), p * beta, eta * shape.n**-0.5
    kernel = dxnxl_kernel(log_decay, expansion * projection, shape.length)
    x, reach = at_least_float32(inputs["x"]).transpose(1, 2), shape.length - 1  # FFTs do not support 16 bits
    if bidirectional:
        past, future = kernel[: shape.width], kernel[shape.width :]
        kernel = F.pad(past, (reach, 0)) + F.pad(future.flip(-1), (0, reach))
        x = F.pad(x, (reach, 0))
    size = 2 * kernel.size(-1)
    y = torch.fft.irfft(torch.fft.rfft(x, size) * torch.fft.rfft(kernel, size), size)
    first = 2 * reach if bidirectional else 0
    return y[..., first : first + shape.length].transpose(1, 2).to(inputs["x"].dtype)
