"""Layer and RMS norm of rows: :func:`row_norm`, cheap enough to be recomputed (:mod:`.common.recompute`)."""

from typing import Any, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .common import apex_norms, native
from .common.dispatch import Operator, Path, kernels_unavailable
from .common.recompute import inputs_of, keep_operator
from .dropout import draw_seed
from .gate import Addition

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


def fuses(residual: Tensor, added: Addition) -> bool:
    """Return whether :func:`norm_of_sum` has a kernel for a sum, those of GPUs."""
    exists = native.has_kernel("gated_residual_norm", residual.device) and not for_apex(residual)
    return exists and added.is_compiled(residual)


def norm_of_sum(
    residual: Tensor,
    weight: Optional[Tensor] = None,
    bias: Optional[Tensor] = None,
    *,
    added: Addition,
    keeps_sum: bool,
    dtype: Optional[torch.dtype] = None,
    **settings: Any,
) -> Tuple[Tensor, Optional[Tensor]]:
    """Return the norm of ``added.to(residual)``, and its copy in a type; both in one kernel on a GPU.

    Args:
        residual: (..., D).
        weight, bias, settings: as in :func:`row_norm`.
        added: to the residual.
        keeps_sum: return the sum in place of its norm, and the norm in place of the copy.
        dtype: of the second result, None for that of the residual.

    Returns:
        (..., D) of the residual's type, and (..., D) of ``dtype``; None without the kernel, and for a copy that is not
        another tensor.
    """
    centred, eps, origin = settings["centred"], settings["eps"], settings.get("origin", 0.0)
    narrow = dtype not in (None, residual.dtype)
    plain = centred and origin == 0.0 and weight is not None and weight.dtype == residual.dtype
    if not fuses(residual, added) or PATHS.choose(None, residual, dtype, plain) != "native":
        total = added.to(residual)
        return total if keeps_sum else row_norm(total, weight, bias, **settings), None
    *rows, gate_bias, dropout = added
    width = residual.size(-1)
    gate_bias, *columns = (None if c is None else c.to(torch.float32).expand(width) for c in (gate_bias, weight, bias))
    seed = draw_seed(residual.device) if dropout != 0.0 else None
    options = (dropout, centred, eps, origin, keeps_sum, narrow)
    first, second = native.operators.gated_residual_norm(residual, *rows, gate_bias, seed, *columns, *options)
    return first, second if keeps_sum or narrow else None


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

    def fake_of_sum(x: Tensor, *rest: Any) -> Tuple[Tensor, Tensor]:
        *_, keeps_sum, narrow = rest
        size, dtype = x.shape if keeps_sum or narrow else (0,), torch.bfloat16 if narrow else x.dtype
        return x.new_empty(x.shape), x.new_empty(size, dtype=dtype)

    def fake_of_sum_backward(
        grad_sum: Any, grad_y: Any, grad_narrow: Any, x: Tensor, update: Any, candidate: Tensor, *rest: Any
    ) -> Tuple[Tensor, ...]:
        grad_update = candidate.new_empty((0,) if update is None else x.shape)
        sums = x.new_empty(3, x.size(-1), dtype=torch.float32)
        return x.new_empty(x.shape), grad_update, candidate.new_empty(x.shape), sums

    def keep(ctx: Any, inputs: Tuple[Any, ...], output: Any) -> None:
        *tensors, bias, p, centred, eps, origin, ctx.keeps_sum, ctx.narrow = inputs
        ctx.settings, ctx.biased = (p, centred, eps, origin), bias is not None
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors)

    def backward_of_sum(ctx: Any, first: Any, second: Any) -> Tuple[Optional[Tensor], ...]:
        of_sum, y = (first, None if ctx.narrow else second) if ctx.keeps_sum else (None, first)
        grads, saved = (of_sum, y, second if ctx.narrow else None), ctx.saved_tensors
        *rows, sums = operators.gated_residual_norm_backward(*grads, *saved, *ctx.settings)
        found = (*rows, rows[2], sums[2], None, sums[0])
        given = (None if tensor is None else g for tensor, g in zip(saved, found))
        return *given, sums[1] if ctx.biased else None, *(None for _ in range(6))

    torch.library.register_fake(f"{namespace}::gated_residual_norm")(fake_of_sum)
    torch.library.register_fake(f"{namespace}::gated_residual_norm_backward")(fake_of_sum_backward)
    native.register_gradients(f"{namespace}::gated_residual_norm", backward_of_sum, keep)
    torch.library.register_fake(f"{namespace}::row_norm")(fake)
    torch.library.register_fake(f"{namespace}::row_norm_backward")(fake_backward)
    native.register_gradients(f"{namespace}::row_norm", backward, keep_operator(operators.row_norm))


native.register(_register)
