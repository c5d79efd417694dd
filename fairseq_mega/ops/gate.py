"""The update gate of MEGA's layers: :func:`gated_residual`, and sums with a residual: :class:`Addition`."""

from typing import Any, NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .activation import with_bias
from .common import native
from .common.dispatch import Operator, Path, kernels_unavailable
from .dropout import draw_seed
from .dropout import dropout as drop


def _supports_types(residual: Tensor, update: Tensor, candidate: Tensor, addend: Optional[Tensor]) -> bool:
    """Return whether the kernels accept the tensors' types as they are; the reference promotes types."""
    one = update.dtype == candidate.dtype and (addend is None or addend.dtype == update.dtype)
    return one and update.dtype in native.DTYPES and residual.dtype in (update.dtype, torch.float32)


PATHS = Operator("gate", Path("reference"), Path("native", kernels_unavailable, native.DTYPES, suits=_supports_types))


def gated_residual(
    residual: Tensor,
    update: Tensor,
    candidate: Tensor,
    addend: Optional[Tensor] = None,
    *,
    bias: Optional[Tensor] = None,
    dropout: float = 0.0,
    path: Optional[str] = None,
) -> Tensor:
    """Mix the candidate into the residual: ``residual + sigmoid(update) (candidate - residual)``.

    Args:
        residual: (..., D); may be float32 beside others of half precision, as under autocast.
        update: (..., D), logits of the update gate.
        candidate: (..., D).
        addend: (..., D); if passed, the candidate is ``SiLU(candidate + addend)``.
        bias: (D,), of the linear map with the result candidate or addend; see :func:`.activation.silu`.
        dropout: probability of dropping an element of the candidate, see :func:`.dropout.dropout`.
        path: "reference" or "native" (compiled kernels) to force a path, "auto" for native wherever its kernels can
            run, None for the environment's choice (see :mod:`fairseq_mega.ops.common.dispatch`).

    Returns:
        (..., D), of the type of the residual.

    Raises:
        ValueError: for an unknown path.
        RuntimeError, TypeError: where "native" is forced and cannot run (the message names the remedy).

    Source: MEGA (Ma et al., ICLR 2023), Eq. 13 to 15.
    """
    if PATHS.choose(path, residual, update, candidate, addend) == "native":
        bias = None if bias is None else bias.to(torch.float32)
        seed = draw_seed(residual.device) if dropout != 0.0 else None
        return native.operators.gated_residual(residual, update, candidate, addend, bias, seed, dropout)
    return gated_residual_reference(residual, update, with_bias(candidate, bias), addend, dropout)


class Addition(NamedTuple):
    """The addition of a sub-layer to its residual, as arguments of :func:`gated_residual`; without an update gate
    ``dropout(candidate + addend + bias)``.
    """

    update: Optional[Tensor]
    candidate: Tensor
    addend: Optional[Tensor] = None
    bias: Optional[Tensor] = None
    dropout: float = 0.0

    def to(self, residual: Tensor) -> Tensor:
        """Return the sum with a residual (..., D); in one kernel on a GPU."""
        update, x, addend, bias, dropout = self
        if update is not None:
            return gated_residual(residual, update, x, addend, bias=bias, dropout=dropout)
        if x.is_cuda and self.is_compiled(residual):
            bias = None if bias is None else bias.to(torch.float32)
            seed = draw_seed(x.device) if dropout != 0.0 else None
            return native.operators.gated_residual(residual, None, x, addend, bias, seed, dropout)
        x = with_bias(x if addend is None else x + addend, bias)
        return residual + (x if dropout == 0.0 else drop(x, dropout))

    def is_compiled(self, residual: Tensor) -> bool:
        """Return whether the kernels compute the sum."""
        update, x, addend, *_ = self
        chosen = PATHS.choose(None, residual, x if update is None else update, x, addend) == "native"
        return chosen and residual.shape == x.shape


def gated_residual_reference(
    residual: Tensor, update: Tensor, candidate: Tensor, addend: Optional[Tensor], dropout: float
) -> Tensor:
    """Compute :func:`gated_residual` in PyTorch."""
    if addend is not None:
        candidate = F.silu(candidate + addend)
    candidate = F.dropout(candidate, dropout, training=dropout != 0.0)
    return torch.addcmul(residual, torch.sigmoid(update), candidate - residual)


def _keep_inputs(ctx: Any, inputs: Tuple[Any, ...], output: Any) -> None:
    *tensors, ctx.p = inputs
    ctx.save_for_backward(*tensors)


def _register(namespace: str) -> None:
    operators = getattr(torch.ops, namespace)

    def fake(x: Tensor, *rest: Any) -> Tensor:
        return x.new_empty(x.shape)

    def fake_backward(grad: Tensor, x: Tensor, *rest: Any) -> Tuple[Tensor, ...]:
        update, candidate, _, bias = rest[:4]
        size, columns = (0,) if update is None else x.shape, 0 if bias is None else x.size(-1)
        grads = x.new_empty(size), candidate.new_empty(size), candidate.new_empty(x.shape)
        return *grads, x.new_empty(columns, dtype=torch.float32)

    def backward(ctx: Any, grad: Tensor) -> Tuple[Optional[Tensor], ...]:
        x, update, candidate, addend, bias, seed = ctx.saved_tensors
        found = operators.gated_residual_backward(grad, x, update, candidate, addend, bias, seed, ctx.p)
        before = (grad, None) if update is None else found[:2]
        after = None if addend is None else found[2], None if bias is None else found[3]
        return *before, found[2], *after, None, None

    torch.library.register_fake(f"{namespace}::gated_residual")(fake)
    torch.library.register_fake(f"{namespace}::gated_residual_backward")(fake_backward)
    native.register_gradients(f"{namespace}::gated_residual", backward, _keep_inputs)


native.register(_register)
