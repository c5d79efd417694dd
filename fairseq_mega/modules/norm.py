"""The five norms of MEGA, all with eps = 1e-5, over hidden states (B, L, D)."""

from functools import partial
from typing import Any, Callable, Dict, Optional, Tuple, Type

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fairseq_mega.ops import decoding
from fairseq_mega.ops.decoding import StepNorm
from fairseq_mega.ops.gate import Addition
from fairseq_mega.ops.norm import fuses, norm_of_sum, row_norm

EPS = 1e-5
HALF = (torch.float16, torch.bfloat16)


class RowNorm(nn.Module):
    """A norm of rows: ``forward`` also accepts the type of the result, and the function ``by`` that computes it."""


class LayerNorm(nn.LayerNorm, RowNorm):
    """Layer norm over features; statistics in at least float32."""

    def __init__(self, dim: int, affine: bool = True) -> None:
        super().__init__(dim, eps=EPS, elementwise_affine=affine)

    def forward(self, x: Tensor, dtype: Optional[torch.dtype] = None, by: Callable[..., Any] = row_norm) -> Any:
        """Normalise (..., D); into ``dtype``, None for that of x."""
        return by(x, self.weight, self.bias, centred=True, eps=EPS, dtype=dtype)

    def of_step(self) -> Optional[StepNorm]:
        """Return scale and shift in the form of the kernels for single steps, or None."""
        return decoding.step_norm(self.weight, self.bias)


class RMSNorm(RowNorm):
    """``w x / sqrt(mean(x^2) + eps)`` with a weight per feature; statistics in at least float32."""

    def __init__(self, dim: int, affine: bool = True) -> None:
        super().__init__()
        self.dim = dim
        self.weight: Optional[nn.Parameter]
        self.register_parameter("weight", nn.Parameter(torch.empty(dim)) if affine else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the weight to one."""
        if self.weight is not None:
            nn.init.ones_(self.weight)

    def forward(self, x: Tensor, dtype: Optional[torch.dtype] = None, by: Callable[..., Any] = row_norm) -> Any:
        """Normalise (..., D), with squares that cannot overflow; into ``dtype``, None for that of x."""
        return by(x, self.weight, centred=False, eps=EPS, dtype=dtype)


class ScaleNorm(RowNorm):
    """``g x / sqrt(mean(x^2) + eps)`` with one scalar g (mean, not sum: g is about 1); float32 statistics."""

    def __init__(self, dim: int, affine: bool = True) -> None:
        super().__init__()
        self.dim = dim
        self.scalar: Optional[nn.Parameter]
        self.register_parameter("scalar", nn.Parameter(torch.empty(1)) if affine else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the scalar to one."""
        if self.scalar is not None:
            nn.init.ones_(self.scalar)

    def forward(self, x: Tensor, dtype: Optional[torch.dtype] = None, by: Callable[..., Any] = row_norm) -> Any:
        """Normalise (..., D); into ``dtype``, None for that of x."""
        return by(x, self.scalar, centred=False, eps=EPS, dtype=dtype)


def type_of_products(x: Tensor) -> torch.dtype:
    """Return bfloat16 where autocast multiplies x in it, else x's own type.

    With x in that type, no conversion is needed between the products. Autocast itself handles float16, whose range is
    smaller.
    """
    kind = x.device.type
    halve = torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind) == torch.bfloat16
    return torch.bfloat16 if halve and x.dtype == torch.float32 else x.dtype


def norm_for_products(norm: nn.Module, x: Tensor) -> Tensor:
    """Return the norm of x (..., D), in the type of the next product."""
    dtype = type_of_products(x)
    if isinstance(norm, RowNorm):
        return norm(x, dtype)
    return norm(x).to(dtype)


def add_and_norm(
    residual: Tensor,
    added: Addition,
    norm: Optional[nn.Module],
    *,
    keeps_sum: bool = False,
    dtype: Optional[torch.dtype] = None,
) -> Tuple[Tensor, Optional[Tensor]]:
    """Return the result of a sub-layer, and the input of the next one's products if a kernel makes both at once.

    Args:
        residual: (B, L, D).
        added: to the residual.
        norm: of the sum, None for none.
        keeps_sum: the result is the sum, whose norm is the input of the next products; else its norm.
        dtype: of the next products, None for that of the residual.

    Returns:
        (B, L, D) of the residual's type, and (B, L, D) of the type of products; None where the next sub-layer makes it.
    """
    if isinstance(norm, RowNorm) and fuses(residual, added):
        return norm(residual, dtype, partial(norm_of_sum, added=added, keeps_sum=keeps_sum))
    total = added.to(residual)
    return total if keeps_sum or norm is None else norm(total), None


def step_norm(norm: nn.Module) -> Optional[StepNorm]:
    """Return a norm in the form of the kernels for single steps; None for a norm without a kernel."""
    return norm.of_step() if type(norm) is LayerNorm else None


class BatchStatistics(nn.modules.batchnorm._BatchNorm):
    """Batch norm with features last, and float32 for the statistics whatever the module's precision.

    A running variance of float16 would be infinite from 65,504 on. A running mean of bfloat16 would stop short of the
    true mean: each step adds a tenth of the difference, which is soon below the type's precision.
    """

    def __init__(self, dim: int, affine: bool = True) -> None:
        super().__init__(dim, eps=EPS, affine=affine)

    def forward(self, x: Tensor) -> Tensor:
        dtype = torch.promote_types(x.dtype, torch.float32)
        parameters = {name: parameter.to(dtype) for name, parameter in self.named_parameters()}
        if any(parameter.dtype != dtype for parameter in self.parameters()):
            return functional_call(self, parameters, (x,))
        return super().forward(x.flatten(0, -2).to(dtype)).view_as(x).to(x.dtype)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:  # .half(), .to() and the like
        before = dict(self.named_buffers())
        super()._apply(fn, recurse)
        for name, buffer in before.items():
            now = getattr(self, name)
            if now.dtype in HALF:
                setattr(self, name, buffer.to(now.device))
        return self


class BatchNorm(BatchStatistics, nn.BatchNorm1d):
    """Batch norm per feature over batch and time, padded positions included as in the published code."""


class SyncBatchNorm(BatchStatistics, nn.SyncBatchNorm):
    """Batch norm whose statistics cover all devices of a distributed run."""


CLASSES: Dict[str, Type[nn.Module]] = {
    "layernorm": LayerNorm,
    "scalenorm": ScaleNorm,
    "rmsnorm": RMSNorm,
    "batchnorm": BatchNorm,
    "syncbatchnorm": SyncBatchNorm,
}
NORMS = tuple(CLASSES)


def build_norm(kind: str, dim: int, affine: bool = True) -> nn.Module:
    """Return a norm over hidden states (B, L, dim).

    Args:
        kind: one of NORMS.
        dim: number of features.
        affine: with learned scale (and shift, where the norm has one).

    Source: MEGA, Table 8 and the published code.
    """
    return CLASSES[kind](dim, affine)
