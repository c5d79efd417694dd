"""Layer and RMS norm of rows: :func:`row_norm`, cheap enough to be recomputed (:mod:`.common.recompute`)."""

from typing import Any, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .common import apex_norms, native
from .common.dispatch import Operator, Path, kernels_unavailable
from .common.recompute import inputs_of, keep_operator

MOST_COLUMNS = 4096  # of a row in the kernels for GPUs, kMostNormColumns of csrc/norm/norm.h


def _suits(x: Tensor, dtype: Optional[torch.dtype], plain: bool) -> bool:
    same = dtype in (None, x.dtype)
    if plain and same and x.is_cuda and x.dtype != torch.float32:
        return False  # PyTorch's kernel reads coefficients of half precision as they are
    return same or (dtype == torch.bfloat16 and x.dtype == torch.float32)


def _unavailable(x: Tensor, *call: Any) -> Optional[str]:
    if x.is_cuda and x.size(-1) > MOST_COLUMNS:
        return f"kernels for GPUs hold rows of at most {MOST_COLUMNS} columns, found {x.size(-1)}"
    return kernels_unavailable(x)


PATHS = Operator("norm", Path("reference"), Path("native", _unavailable, native.DTYPES, suits=_suits))


def for_apex(x: Tensor) -> bool:
    """Return whether apex may have kernels for x; its rules apply to no other tensor."""
    return x.is_cuda and not torch.compiler.is_compiling() and apex_norms.kernels() is not None


def row_norm(
    x: Tensor,
    weight: Optional[Tensor] = None,
    bias: Optional[Tensor] = None,
    *,
    centred: bool,
    eps: float,
    origin: float = 0.0,
    dtype: Optional[torch.dtype] = None,
    path: Optional[str] = None,
) -> Tensor:
    """Layer norm or RMS norm of every row, ``(weight + origin) (x - m) / sqrt(mean((x - m)^2) + eps) + bias``.

    Args:
        x: (..., D); statistics in at least float32.
        weight, bias: (D,), of any floating type, or None for one and zero; the weight of an RMS norm may be one number.
        centred: m is the mean of the row (layer norm); else zero (RMS norm).
        eps: added to the variance.
        origin: that the weight counts from, in float32 at least; the kernels add it.
        dtype: of the result, None for that of x.
        path: as in :func:`.gate.gated_residual`.

    Returns:
        (..., D).

    Source: Ba et al., 2016; Zhang and Sennrich, NeurIPS 2019.
    """
    if weight is not None and not centred and weight.numel() < x.size(-1):
        if path is None and for_apex(x):  # apex has kernels for D weights or none
            y = row_norm(x, centred=centred, eps=eps, dtype=dtype)
            return y * weight.to(y.dtype)
        weight = weight.expand(x.size(-1))
    if path is None and for_apex(x):
        scale = counted_from(weight, origin)
        # apex requires one type
        given = x if scale is None or centred else x.to(torch.promote_types(x.dtype, scale.dtype))
        fused = apex_norms.row_norm(given, scale, bias, centred, eps)
        if fused is not None:
            return fused.to(x.dtype if dtype is None else dtype)
    if path is None and not torch.is_grad_enabled() and x.device.type == "cpu":  # choosing a path would take longer
        return row_norm_reference(x, counted_from(weight, origin), bias, centred, eps, dtype)
    plain = centred and origin == 0.0 and weight is not None and weight.dtype == x.dtype
    if PATHS.choose(path, x, dtype, plain) == "native":
        columns = (None if column is None else column.to(torch.float32) for column in (weight, bias))
        return native.operators.row_norm(x, *columns, centred, eps, origin, dtype not in (None, x.dtype))
    return row_norm_reference(x, counted_from(weight, origin), bias, centred, eps, dtype)


def counted_from(weight: Optional[Tensor], origin: float) -> Optional[Tensor]:
    """Return ``weight + origin``, in float32 at least: bfloat16 has three digits near one."""
    if weight is None or origin == 0.0:
        return weight
    return weight.to(torch.promote_types(weight.dtype, torch.float32)) + origin


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

    def fake(x: Tensor, *rest: Any) -> Tensor:
        return x.new_empty(x.shape, dtype=torch.bfloat16 if rest[-1] else x.dtype)

    def fake_backward(grad: Tensor, x: Tensor, *rest: Any) -> Tuple[Tensor, Tensor]:
        return x.new_empty(x.shape), x.new_empty(2, x.size(-1), dtype=torch.float32)

    def backward(ctx: Any, grad: Tensor) -> Tuple[Optional[Tensor], ...]:
        x, weight, bias, *options = inputs_of(ctx)
        ctx.inputs = None
        grad_x, sums = operators.row_norm_backward(grad, x, weight, *options)
        found = (None if c is None else g for c, g in zip((weight, bias), sums.unbind()))
        return grad_x, *found, *(None for _ in options)

    torch.library.register_fake(f"{namespace}::row_norm")(fake)
    torch.library.register_fake(f"{namespace}::row_norm_backward")(fake_backward)
    native.register_gradients(f"{namespace}::row_norm", backward, keep_operator(operators.row_norm))


native.register(_register)
