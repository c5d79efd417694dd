"""Dropout by a hash in place of a mask: :func:`dropout`, and the seed of one call."""

import functools
import threading
from typing import Any, Callable, List, Optional, Sequence, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .common import native
from .common.dispatch import Operator, Path, kernels_unavailable
from .common.recompute import recomputing

PATHS = Operator("dropout", Path("reference"), Path("native", kernels_unavailable, native.DTYPES))


def dropout(x: Tensor, p: float, *, path: Optional[str] = None) -> Tensor:
    """Set each element to zero with probability p, and divide the others by ``1 - p``.

    The kernel keeps one random number in place of a mask: it drops by a hash of this number, the row and the column.

    Args:
        x: (..., D).
        p: in [0, 1].
        path: as in :func:`.norm.row_norm`; PyTorch's function draws the mask in one thread.

    Source: Srivastava et al., 2014.
    """
    compiled = PATHS.choose(path, x) == "native" and x.device.type == "cpu" and x.dim() > 0
    if torch.compiler.is_compiling() or not compiled:
        return F.dropout(x, p)
    return recomputing(native.operators.dropout, x, draw_seed(x.device), p)


class _Drawn(threading.local):
    seeds: Optional[List[Tensor]] = None  # that the present layer has left; None outside of layers


_DRAWN = _Drawn()
SEEDS = 8  # of one draw; a layer uses no more


def drawing_once(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate the ``forward`` of a layer, called with hidden states, a context, memory and cache: on a GPU, one kernel
    draws the seeds of all its dropout calls, unless the context contains them.
    """

    @functools.wraps(forward)
    def run(layer: Any, x: Tensor, context: Any, *state: Any) -> Any:
        if torch.compiler.is_compiling():
            return forward(layer, x, context, *state)
        before, _DRAWN.seeds = _DRAWN.seeds, [] if context.seeds is None else [*context.seeds.unbind()]
        try:
            return forward(layer, x, context, *state)
        finally:
            _DRAWN.seeds = before

    return run


def draw_seeds(device: torch.device, layers: int) -> Optional[Sequence[Tensor]]:
    """Return the seeds (SEEDS,) of each of several layers, which one kernel draws on a GPU; None where each call draws.

    Layers have their seeds as arguments, so that a layer that is recomputed in the backward pass drops as before.
    """
    if device.type == "cpu" or torch.compiler.is_compiling():
        return None
    return _draw((layers, SEEDS), device).unbind()


def draw_seed(device: torch.device) -> Tensor:
    """Return the seed of one dropout call: an int64 scalar below 2^62, different on every rank."""
    left = _DRAWN.seeds
    if left is None or device.type == "cpu":
        return _draw((), device)
    if not left:
        left.extend(_draw((SEEDS,), device).unbind())
    return left.pop()


def _draw(size: Tuple[int, ...], device: torch.device) -> Tensor:
    seed = torch.randint(1 << 62, size, dtype=torch.int64, device=device)
    several = torch.distributed.is_available() and torch.distributed.is_initialized()
    return seed ^ (torch.distributed.get_rank() * 0x1E3779B97F4A7C15 & (1 << 62) - 1) if several else seed


def _keep_seed(ctx: Any, inputs: Tuple[Any, ...], output: Any) -> None:
    x, *ctx.options = inputs
    if hasattr(x.grad_fn, "operator"):  # otherwise only the function that uses the result keeps it
        ctx.operator, ctx.inputs = native.operators.dropout, None
        ctx.save_for_backward(x)


def _register(namespace: str) -> None:
    """Register the gradient, which drops the same elements."""
    operators = getattr(torch.ops, namespace)

    def fake(x: Tensor, seed: Tensor, p: float) -> Tensor:
        return x.new_empty(x.shape)

    def backward(ctx: Any, grad: Tensor) -> Tuple[Optional[Tensor], ...]:
        ctx.inputs = None
        return operators.dropout(grad, *ctx.options), None, None

    torch.library.register_fake(f"{namespace}::dropout")(fake)
    native.register_gradients(f"{namespace}::dropout", backward, _keep_seed, twice=True)


native.register(_register)
