"""The functions, with the arguments that apex's have."""

from typing import Sequence

import fused_layer_norm_cuda as kernels
from torch import Tensor


def fused_layer_norm(input: Tensor, normalized_shape: Sequence[int], eps: float = 1e-6) -> Tensor:
    assert tuple(normalized_shape) == input.shape[-1:]
    return kernels.layer_norm(input, eps).to(input.dtype)


def fused_layer_norm_affine(
    input: Tensor, weight: Tensor, bias: Tensor, normalized_shape: Sequence[int], eps: float = 1e-6
) -> Tensor:
    assert tuple(normalized_shape) == input.shape[-1:] and weight.dtype == bias.dtype == input.dtype
    return (kernels.layer_norm(input, eps) * weight + bias).to(input.dtype)


def fused_rms_norm(input: Tensor, normalized_shape: Sequence[int], eps: float = 1e-6) -> Tensor:
    assert tuple(normalized_shape) == input.shape[-1:]
    return kernels.rms_norm(input, eps).to(input.dtype)


def fused_rms_norm_affine(input: Tensor, weight: Tensor, normalized_shape: Sequence[int], eps: float = 1e-6) -> Tensor:
    assert tuple(normalized_shape) == input.shape[-1:] and weight.dtype == input.dtype
    return (kernels.rms_norm(input, eps) * weight).to(input.dtype)
