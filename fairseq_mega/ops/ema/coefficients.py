"""Coefficients of the damped EMA and the convolution kernel they define.

On a GPU one kernel computes the coefficients, and one their gradients, in place of dozens of small ones.
"""

import math
from typing import Any, NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_mega.ops.common import native
from fairseq_mega.ops.common.dispatch import Operator, Path, kernels_unavailable

PATHS = Operator("ema_coefficients", Path("reference"), Path("native", kernels_unavailable, (torch.float32,)))


def has_kernels(tensor: Tensor, path: Optional[str] = None) -> bool:
    """Return whether kernels compute the coefficients of a tensor's device and type, and their gradients."""
    chosen = PATHS.choose(path, tensor) == "native"
    return chosen and tensor.numel() > 0 and native.has_kernel("ema_coefficients", tensor.device)


class EMACoefficients(NamedTuple):
    """The coefficients of a step ``h_t = expansion x_t + exp(log_decay) h_{t-1}``, ``y_t = sum_n Re(projection h_t)``.

    Each is (K, N), where K is the width d, or 2d for a bidirectional EMA (rows 0..d-1 look into the past, d..2d-1 into
    the future). MEGA's are real. For MEGALODON's complex EMA log_decay and projection are complex, and so is its state.
    """

    log_decay: Tensor  # log(1 - alpha delta), never positive; plus i times the angle of a step
    expansion: Tensor  # alpha beta (MEGALODON: alpha), in front of the input; real
    projection: Tensor  # eta / sqrt(N), from the state to the output

    @property
    def is_complex(self) -> bool:
        """Return whether the state is complex."""
        return self.log_decay.is_complex() or self.projection.is_complex()


def compute_dtype(tensor: Tensor) -> torch.dtype:
    """float64 for float64 tensors, float32 for everything else: the precision in which the EMA is computed."""
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


def ema_coefficients(
    alpha: Tensor, delta: Tensor, beta: Tensor, eta: Tensor, *, path: Optional[str] = None
) -> EMACoefficients:
    """Return the coefficients of the recurrence from the learned parameters of the multi-dimensional damped EMA.

    Args:
        alpha: (K, N), logit of the decay factor, any floating dtype.
        delta: (K, N), logit of the damping factor.
        beta: (K, N), expansion of the input into N dimensions.
        eta: (K, N), projection of the N dimensions onto the output.
        path: as in :func:`.gate.gated_residual`; the kernels are for GPUs; on other devices "native" is PyTorch's.

    Returns:
        Coefficients in float32 (float64 for float64 parameters), finite for logits of any size.

    Source: MEGA (Ma et al., ICLR 2023), Eq. 5; the scale 1/sqrt(N) is the published code's.
    """
    dtype = compute_dtype(alpha)
    alpha, delta, beta, eta = (parameter.to(dtype) for parameter in (alpha, delta, beta, eta))
    if has_kernels(alpha, path):
        return EMACoefficients(*native.operators.ema_coefficients(alpha, delta, beta, eta))
    decay_factor = torch.sigmoid(alpha)
    scale = 1.0 / math.sqrt(max(alpha.size(-1), 1))
    return EMACoefficients(_log_decay(alpha, delta), decay_factor * beta, eta * scale)


def complex_ema_coefficients(alpha: Tensor, delta: Tensor, theta: Tensor, gamma: Tensor) -> EMACoefficients:
    """Return the coefficients of the recurrence from the learned parameters of the complex EMA.

    Dimension k of N turns by ``2 pi k / N sigmoid(theta)`` in each step.

    Args:
        alpha: (K, N), logit of the weight of the input, any floating dtype.
        delta: (K, N), logit of the damping factor.
        theta: (K, 1), logit of the base angle of each feature.
        gamma: (K, N, 2), real and imaginary part of the projection of the N dimensions onto the output.

    Returns:
        Coefficients in float32 and complex64 (float64 and complex128 for float64 parameters).

    Source: MEGALODON (Ma et al., NeurIPS 2024), Eq. 2 and 3, as in the published code: the input is not turned (a
    constant angle that gamma absorbs), there is no expansion beta, and the output has the scale 1/sqrt(N).
    """
    dtype = compute_dtype(alpha)
    alpha, delta, theta, gamma = (parameter.to(dtype) for parameter in (alpha, delta, theta, gamma))
    if has_kernels(alpha):
        log_decay, expansion, projection = native.operators.ema_coefficients(alpha, delta, theta, gamma)
        return EMACoefficients(torch.view_as_complex(log_decay), expansion, torch.view_as_complex(projection))
    n = alpha.size(-1)
    turn = torch.arange(1, n + 1, device=alpha.device, dtype=dtype) * (2 * math.pi / n)
    log_decay = torch.complex(_log_decay(alpha, delta), turn * torch.sigmoid(theta))
    return EMACoefficients(log_decay, torch.sigmoid(alpha), torch.view_as_complex(gamma.contiguous()) / math.sqrt(n))


def _log_decay(alpha: Tensor, delta: Tensor) -> Tensor:
    """log(1 - sigmoid(alpha) * sigmoid(delta)), accurate at both ends and with finite gradients.

    log1p is exact for slow decays (a small product). Near a product of one it would cancel, so there the
    same quantity is written as log(sigmoid(-alpha) + sigmoid(alpha) * sigmoid(-delta)).
    """
    product = torch.sigmoid(alpha) * torch.sigmoid(delta)
    slow = torch.log1p(-product.clamp(max=0.5))
    fast = torch.logaddexp(F.logsigmoid(-alpha), F.logsigmoid(alpha) + F.logsigmoid(-delta))
    return torch.where(product > 0.5, fast, slow)


def power_tables(log_decay: Tensor, length: int) -> "tuple[Tensor, Tensor]":
    """Two small tables whose products are all powers 0..length-1 of the decay: ``q^(T a + b) = q^(T a) q^b``.

    Args:
        log_decay: (K, N), real or complex.
        length: number of requested powers, at least 1.

    Returns:
        ``q^(T a)`` of shape (K, N, A) and ``q^b`` of shape (K, N, T) with T about sqrt(length), A T >= length.
    """
    block = 1 << max(0, (length - 1).bit_length() // 2)
    blocks = -(-length // block)
    dtype = log_decay.real.dtype
    steps = torch.arange(max(block, blocks), device=log_decay.device, dtype=dtype)
    log_decay = log_decay.unsqueeze(-1)
    return torch.exp(log_decay * (steps[:blocks] * block)), torch.exp(log_decay * steps[:block])


def ema_kernel(coefficients: EMACoefficients, length: int) -> Tensor:
    """Convolution kernel ``k[c, t] = Re sum_n projection expansion q^t`` of shape (K, length), real.

    The K x N x length powers are never stored: the sum over n of the two-table product is one batched matrix product.

    Source: MEGA, Appendix A.
    """
    coarse, fine = power_tables(coefficients.log_decay, length)
    weight = (coefficients.projection * coefficients.expansion).unsqueeze(-1)
    return real_bmm((coarse * weight).transpose(1, 2), fine).flatten(1)[:, :length]


def real_bmm(a: Tensor, b: Tensor) -> Tensor:
    """Real part of a batched matrix product, without computing the imaginary one."""
    if not (a.is_complex() or b.is_complex()):
        return torch.matmul(a, b)
    a, b = (tensor if tensor.is_complex() else torch.complex(tensor, torch.zeros_like(tensor)) for tensor in (a, b))
    return torch.matmul(torch.cat([a.real, -a.imag], dim=-1), torch.cat([b.real, b.imag], dim=-2))


def _keep_inputs(ctx: Any, inputs: Tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(*inputs)


def _register(namespace: str) -> None:
    operators = getattr(torch.ops, namespace)

    def fake(alpha: Tensor, delta: Tensor, beta: Tensor, eta: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
        return alpha.new_empty(eta.shape), alpha.new_empty(alpha.shape), alpha.new_empty(eta.shape)

    def fake_backward(by_decay: Tensor, by_expansion: Tensor, by_projection: Tensor, *learned: Tensor) -> Any:
        return tuple(parameter.new_empty(parameter.shape) for parameter in learned)

    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return operators.ema_coefficients_backward(*gradients, *ctx.saved_tensors)

    torch.library.register_fake(f"{namespace}::ema_coefficients")(fake)
    torch.library.register_fake(f"{namespace}::ema_coefficients_backward")(fake_backward)
    native.register_gradients(f"{namespace}::ema_coefficients", backward, _keep_inputs)


native.register(_register)
