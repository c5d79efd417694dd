"""The EMA in the arrangement of the published code, the baseline of our paths, and the layers' modules of it."""

from typing import Any, Dict

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_mega.ops.ema import complex_ema_coefficients
from fairseq_mega.ops.ema.coefficients import compute_dtype

Inputs = Dict[str, Tensor]
WRITTEN_OUT = ("activation", "attention", "dropout", "gate", "norm", "query_key")  # in the published code
PUBLISHED = ",".join(f"{operator}=reference" for operator in WRITTEN_OUT)  # a value of FAIRSEQ_MEGA_PATHS


def dxnxl_kernel(log_decay: Tensor, weight: Tensor, length: int) -> Tensor:
    """The EMA's kernel (K, L) from all powers at once, a tensor of K x N x L numbers, as published."""
    steps = torch.arange(length, device=weight.device).to(log_decay.real.dtype)
    powers = torch.exp(log_decay.unsqueeze(-1) * steps)
    kernel = torch.einsum("kn,knl->kl", weight, powers)
    return kernel.real if kernel.is_complex() else kernel


def dxnxl_ema(inputs: Inputs, bidirectional: bool = False) -> Tensor:
    """The EMA in the arrangement of the published code: the kernel of :func:`dxnxl_kernel`, then an FFT of twice the
    length.

    Bidirectional: the two kernels side by side as one of 2 L - 1 taps, the input with L - 1 zeros before it, and an FFT
    of 2 (2 L - 1) numbers (MEGA, Appendix A and its code; MEGALODON for the complex form).

    Args:
        inputs: ``x`` (B, L, D), and the parameters alpha, delta, and beta and eta or, complex, theta and gamma.
        bidirectional: whether the parameters have 2 D rows, of both directions.
    """
    if "theta" in inputs:
        parameters = (inputs[name] for name in ("alpha", "delta", "theta", "gamma"))
        log_decay, expansion, projection = complex_ema_coefficients(*parameters)
    else:
        alpha, delta, beta, eta = (_at_least_float32(inputs[name]) for name in ("alpha", "delta", "beta", "eta"))
        p, a = torch.sigmoid(alpha), torch.sigmoid(delta)
        log_decay, expansion, projection = torch.log(1 - p * a), p * beta, eta * alpha.size(1) ** -0.5
    x = _at_least_float32(inputs["x"]).transpose(1, 2)  # (B, D, L); FFTs do not support 16 bits
    width, length = x.shape[1:]
    kernel, reach = dxnxl_kernel(log_decay, expansion * projection, length), length - 1
    if bidirectional:
        past, future = kernel[:width], kernel[width:]
        kernel = F.pad(past, (reach, 0)) + F.pad(future.flip(-1), (0, reach))
        x = F.pad(x, (reach, 0))
    size = 2 * kernel.size(-1)
    y = torch.fft.irfft(torch.fft.rfft(x, size) * torch.fft.rfft(kernel, size), size)
    first = 2 * reach if bidirectional else 0
    return y[..., first : first + length].transpose(1, 2).to(inputs["x"].dtype)


def _at_least_float32(tensor: Tensor) -> Tensor:
    return tensor.to(compute_dtype(tensor))


class PublishedEMA(torch.nn.Module):
    """An EMA sub-layer of this package, MEGA's or MEGALODON's, computed in the arrangement of the published code."""

    def __init__(self, ours: Any) -> None:
        super().__init__()
        for name, parameter in ours.named_parameters():
            self.register_parameter(name, parameter)
        self.bidirectional = ours.bidirectional

    def forward(self, x: Tensor, **_: Any) -> Any:
        """Return the outputs (B, L, D), and no state."""
        parameters = dict(self.named_parameters())
        skipped = x * parameters.pop("omega")
        y = dxnxl_ema({"x": x, **parameters}, self.bidirectional) + skipped
        return y if "theta" in parameters else F.silu(y), None
