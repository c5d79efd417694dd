"""SiLU and the operations joined with it: :func:`silu`, cheap enough for :mod:`.common.recompute`."""

from typing import Any, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .common import native
from .common.dispatch import Operator, Path, kernels_unavailable
from .common.recompute import inputs_of, keep_operator
from .dropout import draw_seed
from .dropout import dropout as drop


def _one_type(x: Tensor, *others: Optional[Tensor]) -> bool:
    return all(other is None or other.dtype == x.dtype for other in others)


PATHS = Operator("activation", Path("reference"), Path("native", kernels_unavailable, native.DTYPES, suits=_one_type))


def adds_bias(x: Tensor) -> bool:
    """Return whether kernels that follow a linear map with the result x add its bias: those for GPUs."""
    return x.is_cuda and PATHS.choose(None, x) == "native"


def silu(
    x: Tensor,
    factor: Optional[Tensor] = None,
    *,
    skip: Optional[Tensor] = None,
    omega: Optional[Tensor] = None,
    bias: Optional[Tensor] = None,
    dropout: float = 0.0,
    path: Optional[str] = None,
) -> Tensor:
    """``factor SiLU(x + omega skip + bias)``: the activation of values and FFN, the reset gate, or the EMA's output.

    Args:
        x: (..., D).
        factor: (..., D), the input of a reset gate with the logits x.
        skip: (..., D), the input of the EMA whose output is x.
        omega: (D,), the skip's weight.
        bias: (D,), of the linear map with the result x; kernels for GPUs add it, and sum up its gradient.
        dropout: probability of dropping an element of the result, in the same kernel on a GPU.
        path: as in :func:`.gate.gated_residual`.

    Returns:
        (..., D).

    Source: MEGA, Eq. 7, 8 and 12; the skip is the published code's.
    """
    plain = factor is None and skip is None and bias is None and dropout == 0.0
    if plain and path is None and not torch.is_grad_enabled():
        return F.silu(x)  # without gradients, choosing a path would take longer than a single step
    if PATHS.choose(path, x, factor, skip) == "native":
        seed = draw_seed(x.device) if dropout != 0.0 and x.is_cuda else None
        omega, bias = (None if column is None else column.to(torch.float32) for column in (omega, bias))
        out = native.operators.silu(x, factor, skip, omega, bias, seed, dropout, True)
        return out if seed is not None or dropout == 0.0 else drop(out, dropout)
    out = silu_reference(with_bias(x, bias), factor, skip, omega)
    return out if dropout == 0.0 else drop(out, dropout)


def with_bias(x: Tensor, bias: Optional[Tensor]) -> Tensor:
    """Return ``x + bias`` in the type of x; no bias is zero."""
    return x if bias is None else x + bias.to(x.dtype)


def add_skip(x: Tensor, skip: Tensor, omega: Tensor) -> Tensor:
    """``x + omega skip``, the output of MEGALODON's EMA; arguments as in :func:`silu`, whose kernel a GPU uses.

    PyTorch's gradient of omega would write the products of all elements to memory.
    """
    if x.is_cuda and PATHS.choose(None, x, skip) == "native":
        return native.operators.silu(x, None, skip, omega.to(torch.float32), None, None, 0.0, False)
    return torch.addcmul(x, skip, omega.to(x.dtype))


def silu_reference(x: Tensor, factor: Optional[Tensor], skip: Optional[Tensor], omega: Optional[Tensor]) -> Tensor:
    """Compute :func:`silu` in PyTorch."""
    if skip is not None and omega is not None:
        x = torch.addcmul(x, skip, omega.to(skip.dtype))
    return F.silu(x) if factor is None else factor * F.silu(x)


def _register(namespace: str) -> None:
    operators = getattr(torch.ops, namespace)

    def fake(x: Tensor, *rest: Any) -> Tensor:
        return x.new_empty(x.shape)

    def fake_backward(
        grad: Tensor, x: Tensor, factor: Any, skip: Any, omega: Any, bias: Any, *rest: Any
    ) -> Tuple[Tensor, ...]:
        def like(other: Any) -> Tensor:
            return x.new_empty(0 if other is None else x.shape)

        columns = 0 if skip is None and bias is None else x.size(-1)
        return x.new_empty(x.shape), like(factor), like(skip), x.new_empty(2, columns, dtype=torch.float32)

    def backward(ctx: Any, grad: Tensor) -> Tuple[Optional[Tensor], ...]:
        x, *others, seed, p, activated = inputs_of(ctx)
        ctx.inputs = None
        grad_x, *rows, columns = operators.silu_backward(grad, x, *others, seed, p, activated)
        found = (g if other is not None else None for g, other in zip((*rows, *columns.unbind()), others))
        return grad_x, *found, None, None, None

    torch.library.register_fake(f"{namespace}::silu")(fake)
    torch.library.register_fake(f"{namespace}::silu_backward")(fake_backward)
    native.register_gradients(f"{namespace}::silu", backward, keep_operator(operators.silu))


native.register(_register)
