"""Rotary positions: queries and keys turned by angles that grow with the position."""

from functools import lru_cache, wraps
from typing import Any, Callable, Optional, Tuple

import torch
from torch import Tensor

from .common import native
from .common.dispatch import Operator, Path, kernels_unavailable
from .common.recompute import inputs_of, keep_operator
from .common.transforms import is_transformed
from .norm import row_norm

PATHS = Operator("rotary", Path("reference"), Path("native", kernels_unavailable, native.DTYPES))


def normalized_query_key(
    x: Tensor,
    scale: Tensor,
    offset: Tensor,
    *,
    first: int,
    chunk_size: int,
    base: float,
    eps: float,
    unit: float = 0.0,
    turns: Optional[Tensor] = None,
    path: Optional[str] = None,
) -> Tuple[Tensor, Tensor]:
    """Queries and keys ``scale n + offset``, turned, with ``n = x / sqrt(mean(x^2) + eps)`` head by head.

    The kernel keeps only its inputs; :func:`.common.recompute.recomputing` need not keep its results on a CPU.

    Args:
        x: (B, L, H E), their shared representation, E even.
        scale, offset: (2, H, E), of queries and of keys; float32, or float64 with x.
        first, chunk_size, base: as :func:`rotate` has them.
        eps: added to the mean of the squares.
        unit: if not 0, ``scale`` is (scale + 1) unit, which the kernels compute.
        turns: rows of :func:`turns_of_chunk` for the L steps; None: those from ``first`` on.
        path: "reference" or "native" (compiled kernels) to force a path, "auto" for native wherever it can run, None
            for the environment's choice (see :mod:`fairseq_mega.ops.common.dispatch`).

    Returns:
        Two times (B, L, H E), of the type of x.

    Raises:
        ValueError: for an unknown path.
        RuntimeError, TypeError: where "native" is forced and cannot run.

    Source: MEGALODON (Ma et al., NeurIPS 2024), Eq. 6 to 8; RoFormer (Su et al., 2021), Eq. 34.
    """
    features = scale.size(-1)
    if PATHS.choose(path, x) == "native":
        if turns is None:
            turns = _signed_turns(features // 2, _reach(first + x.size(1), chunk_size), base, x.device)
        else:
            first = 0
        columns = scale.to(torch.float32), offset.to(torch.float32)
        return native.operators.rotary_query_key(x, *columns, turns, first, eps, unit)
    if unit != 0.0:
        scale = (scale + 1) * unit
    wide = x.to(torch.promote_types(x.dtype, torch.float32)).unflatten(-1, (-1, features))
    normalized = row_norm(wide, centred=False, eps=eps, path="reference" if path == "reference" else None)
    both = torch.addcmul(offset, normalized.unsqueeze(-3), scale)  # (B, L, 2, H, E)
    turned = rotate(both, first, chunk_size, base) if turns is None else _turned(both, turns)
    query, key = turned.flatten(-2).to(x.dtype).unbind(-2)
    return query, key


def turns_of_chunk(x: Tensor, features: int, chunk_size: int, base: float, *, path: Optional[str] = None) -> Tensor:
    """Return the table that :func:`normalized_query_key` reads for x: a row for each position of a chunk."""
    if PATHS.choose(path, x) == "native":
        return _signed_turns(features // 2, chunk_size, base, x.device)
    return rotations(features // 2, chunk_size, base, torch.promote_types(x.dtype, torch.float32), x.device)


def rotate(x: Tensor, first: int, chunk_size: int, base: float) -> Tensor:
    """Turn the pairs (2 i, 2 i + 1) of x at position t by the angle ``t base^(-2 i / E)``.

    Args:
        x: (B, L, ..., E), E even; float32 or float64.
        first: position of the first step within its chunk.
        chunk_size: positions restart with each chunk; -1 for one chunk.
        base: of the angles.

    Returns:
        As x.

    Source: RoFormer (Su et al., 2021), Eq. 34; within chunks as in MEGALODON's code.
    """
    last = first + x.size(1)
    reach = _reach(last, chunk_size)
    turns = rotations(x.size(-1) // 2, reach, base, x.dtype, x.device)  # (reach, E / 2)
    if last <= reach:
        turns = turns[first:last]
    else:
        turns = turns[torch.arange(first, last, device=x.device) % reach]
    return _turned(x, turns)


def _turned(x: Tensor, turns: Tensor) -> Tensor:
    """Turn the pairs of x (B, L, ..., E) by complex numbers (L, E / 2)."""
    turns = turns.view(x.size(1), *(1,) * (x.dim() - 3), x.size(-1) // 2)
    return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * turns).flatten(-2)


def _reach(last: int, chunk_size: int) -> int:
    """Return the length of the table for steps before ``last``; few distinct lengths make few tables."""
    if 0 < chunk_size < last:
        return chunk_size
    if torch.compiler.is_compiling():  # one graph for all lengths
        return last
    return 1 << max(last - 1, 0).bit_length()


def _kept(table: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Keep the last tables. A table made while a model is traced (torch.export) or transformed belongs to it alone."""
    cached = lru_cache(maxsize=16)(table)

    @wraps(table)
    def find(*arguments: Any) -> Tensor:
        if is_transformed():
            return table(*arguments)
        found = cached(*arguments)
        if type(found) is not Tensor:
            cached.cache_clear()
        return found

    return find


@_kept
def rotations(half: int, length: int, base: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Turns ``exp(i t base^(-k / half))`` of positions t < length, (length, half) complex; shared by all layers."""
    with torch.inference_mode(False), torch.no_grad():  # the table is cached
        frequency = base ** (-torch.arange(half, dtype=torch.float64, device=device) / half)
        angle = torch.arange(length, dtype=torch.float64, device=device).unsqueeze(-1) * frequency
        return torch.polar(torch.ones_like(angle), angle).to(torch.promote_types(dtype, torch.complex64))


@_kept
def _signed_turns(half: int, length: int, base: float, device: torch.device) -> Tensor:
    """:func:`rotations` in the form of the kernel (length, 2, 2 half): cosines, and sines whose sign is that of the
    other feature of the pair in the result."""
    turns = rotations(half, length, base, torch.float32, device)
    with torch.inference_mode(False), torch.no_grad():
        sines = torch.stack((-turns.imag, turns.imag), dim=-1).flatten(-2)
        return torch.stack((turns.real.repeat_interleave(2, dim=-1), sines), dim=1)


def _register(namespace: str) -> None:
    operators = getattr(torch.ops, namespace)

    def fake(x: Tensor, *rest: Any) -> Tuple[Tensor, Tensor]:
        return x.new_empty(x.shape), x.new_empty(x.shape)

    def fake_backward(grad_query: Tensor, grad_key: Tensor, x: Tensor, *rest: Any) -> Tuple[Tensor, Tensor]:
        return x.new_empty(x.shape), x.new_empty(4, x.size(-1), dtype=torch.float32)

    def backward(ctx: Any, grad_query: Tensor, grad_key: Tensor) -> Tuple[Optional[Tensor], ...]:
        x, scale, _, *rest = inputs_of(ctx)
        ctx.inputs = None
        grad_x, sums = operators.rotary_query_key_backward(grad_query, grad_key, x, scale, *rest)
        return grad_x, *sums.view(2, *scale.shape).unbind(), None, None, None, None

    torch.library.register_fake(f"{namespace}::rotary_query_key")(fake)
    torch.library.register_fake(f"{namespace}::rotary_query_key_backward")(fake_backward)
    keep = keep_operator(operators.rotary_query_key)
    native.register_gradients(f"{namespace}::rotary_query_key", backward, keep)


native.register(_register)
