"""Queries and keys of MEGA from their shared representation: :func:`query_key`."""

from typing import Any, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .common import native
from .common.dispatch import Operator, Path, kernels_unavailable
from .common.recompute import inputs_of, keep_operator

PATHS = Operator("query_key", Path("reference"), Path("native", kernels_unavailable, native.DTYPES))


def query_key(x: Tensor, kappa: Tensor, mu: Tensor, *, path: Optional[str] = None) -> Tuple[Tensor, Tensor]:
    """Queries and keys ``kappa SiLU(x) + mu`` from the logits of their shared representation.

    Args:
        x: (..., z).
        kappa, mu: (2, z), of queries and of keys.
        path: as in :func:`.gate.gated_residual`.

    Returns:
        Two times (..., z), of the type of x.

    Source: MEGA, Eq. 9 and 10.
    """
    if PATHS.choose(path, x) == "native":
        return native.operators.query_key(x, kappa.to(torch.float32), mu.to(torch.float32))
    shared = F.silu(x)
    # unbind, as the gradient of an index would fill a tensor of zeros for each of the four rows
    rows = zip(mu.unbind(), kappa.unbind())
    query, key = (torch.addcmul(offset, shared, factor).to(x.dtype) for offset, factor in rows)
    return query, key


def _register(namespace: str) -> None:
    operators = getattr(torch.ops, namespace)

    def fake(x: Tensor, *rest: Any) -> Tuple[Tensor, Tensor]:
        return x.new_empty(x.shape), x.new_empty(x.shape)

    def fake_backward(grad: Tensor, other: Tensor, x: Tensor, kappa: Tensor) -> Tuple[Tensor, Tensor]:
        return x.new_empty(x.shape), kappa.new_empty(2, 2, x.size(-1))

    def backward(ctx: Any, grad_query: Tensor, grad_key: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
        x, kappa, _ = inputs_of(ctx)
        ctx.inputs = None
        grad_x, sums = operators.query_key_backward(grad_query, grad_key, x, kappa)
        return grad_x, sums[0], sums[1]

    torch.library.register_fake(f"{namespace}::query_key")(fake)
    torch.library.register_fake(f"{namespace}::query_key_backward")(fake_backward)
    native.register_gradients(f"{namespace}::query_key", backward, keep_operator(operators.query_key))


native.register(_register)
