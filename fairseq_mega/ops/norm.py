"""Layer and RMS norm of rows: :func:`row_norm`, cheap enough to be recomputed (:mod:`.common.recompute`)."""

from typing import Any, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .common import apex_norms, native
from .common.dispatch import Operator, Path, kernels_unavailable
from .common.recompute import inputs_of, keep_operator


def _supports_result(x: Tensor, dtype: Optional[torch.dtype]) -> bool:
    return dtype in (None, x.dtype) or (dtype == torch.bfloat16 and x.dtype == torch.float32)


PATHS = Operator("norm", Path("reference"), Path("native", kernels_unavailable, native.DTYPES, suits=_supports_result))


def on_gpu(x: Tensor) -> bool:
    """Return whether apex may have kernels for x; its rules apply to no other tensor."""
    return x.is_cuda


def row_norm(
    x: Tensor,
    weight: Optional[Tensor] = None,
    bias: Optional[Tensor] = None,
    *,
    centred: bool,
    eps: float,
    dtype: Optional[torch.dtype] = None,
    path: Optional[str] = None,
) -> Tensor:
    """Layer norm or RMS norm of every row, ``weight (x - m) / sqrt(mean((x - m)^2) + eps) + bias``.

    Args:
        x: (..., D); statistics in at least float32.
        weight, bias: (D,), of any floating type, or None for one and zero; the weight of an RMS norm may be one number.
        centred: m is the mean of the row (layer norm); else zero (RMS norm).
        eps: added to the variance.
        dtype: of the result, None for that of x.
        path: as in :func:`.gate.gated_residual`; the kernels are for CPUs; on other devices "native" is PyTorch's.

    Returns:
        (..., D).

    Source: Ba et al., 2016; Zhang and Sennrich, NeurIPS 2019.
    """
    if weight is not None and not centred and weight.numel() < x.size(-1):
        if path is None and on_gpu(x):  # apex has kernels for D weights or none
            y = row_norm(x, centred=centred, eps=eps, dtype=dtype)
            return y * weight.to(y.dtype)
        weight = weight.expand(x.size(-1))
    if path is None and on_gpu(x):
        dtype = x.dtype if dtype is None else dtype
        if weight is not None and not centred:  # apex requires one type
            x = x.to(torch.promote_types(x.dtype, weight.dtype))
        fused = apex_norms.row_norm(x, weight, bias, centred, eps)
        if fused is not None:
            return fused.to(dtype)
    if path is None and not torch.is_grad_enabled():
        return row_norm_reference(x, weight, bias, centred, eps, dtype)  # choosing a path would take longer
    if PATHS.choose(path, x, dtype) == "native" and x.device.type == "cpu":
        columns = (None if column is None else column.to(torch.float32) for column in (weight, bias))
        return native.operators.row_norm(x, *columns, centred, eps, dtype not in (None, x.dtype))
    return row_norm_reference(x, weight, bias, centred, eps, dtype)


def row_norm_reference(
    x: Tensor, weight: Optional[Tensor], bias: Optional[Tensor], centred: bool, eps: float, dtype: Optional[torch.dtype]
) -> Tensor:
    """Layer or RMS norm; torch's layer norm computes in float32 inside where all types are one."""
    shape = x.shape[-1:]
    wide = torch.promote_types(x.dtype, torch.float32)
    if centred and (weight is None or weight.dtype == x.dtype):
        y = F.layer_norm(x, shape, weight, bias, eps)
    else:
        w, b = (None if column is None else column.to(wide) for column in (weight, bias))
        y = F.layer_norm(x.to(wide), shape, w, b, eps) if centred else F.rms_norm(x.to(wide), shape, w, eps)
        y = y.to(x.dtype)
    return y if dtype is None else y.to(dtype)


def _register(namespace: str) -> None:
    operators = getattr(torch.ops, namespace)

    def fake(x: Tensor, weight: Any, bias: Any, centred: bool, eps: float, narrow: bool) -> Tensor:
        return x.new_empty(x.shape, dtype=torch.bfloat16 if narrow else x.dtype)

    def fake_backward(grad: Tensor, x: Tensor, *rest: Any) -> Tuple[Tensor, Tensor]:
        parts = -(-x.numel() // max(x.size(-1), 1) // 256)
        return x.new_empty(x.shape), x.new_empty(parts, 2, x.size(-1), dtype=torch.float32)

    def backward(ctx: Any, grad: Tensor) -> Tuple[Optional[Tensor], ...]:
        x, weight, bias, *options = inputs_of(ctx)
        ctx.inputs = None
        grad_x, parts = operators.row_norm_backward(grad, x, weight, *options)
        of_weight, of_bias = parts.sum(0)
        return grad_x, *(None if c is None else g for c, g in ((weight, of_weight), (bias, of_bias))), None, None, None

    torch.library.register_fake(f"{namespace}::row_norm")(fake)
    torch.library.register_fake(f"{namespace}::row_norm_backward")(fake_backward)
    native.register_gradients(f"{namespace}::row_norm", backward, keep_operator(operators.row_norm))


native.register(_register)
