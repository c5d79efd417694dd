"""The operators of gate.py on single elements and rows, by PyTorch's functions; arguments and results as there."""

from typing import Optional

import torch
import torch.nn.functional as F
from torch import Tensor


def gated_residual(
    residual: Tensor, update: Tensor, candidate: Tensor, addend: Optional[Tensor], dropout: float
) -> Tensor:
    """The update gate."""
    if addend is not None:
        candidate = F.silu(candidate + addend)
    candidate = F.dropout(candidate, dropout, training=dropout != 0.0)
    return torch.addcmul(residual, torch.sigmoid(update), candidate - residual)


def silu(x: Tensor, factor: Optional[Tensor], skip: Optional[Tensor], omega: Optional[Tensor]) -> Tensor:
    """The activation with what stands beside it."""
    if skip is not None and omega is not None:
        x = torch.addcmul(x, skip, omega.to(skip.dtype))
    return F.silu(x) if factor is None else factor * F.silu(x)


def row_norm(
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
