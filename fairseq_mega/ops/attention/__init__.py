"""Single-head attention of MEGA (section 3.2): :func:`attention`, its chunked form, and paths."""

import math
from typing import Any, Callable, Dict, Optional, Tuple

import torch
from torch import Tensor

from fairseq_mega.ops.common.dispatch import Operator, Path, check_devices, kernels_obstacle
from fairseq_mega.ops.common.native import DTYPES, cpu_level
from fairseq_mega.ops.dropout import draw_seed

from . import native_backward  # noqa: F401  registers the gradients of .native
from .native import native_attention
from .native_blocks import blocks_attention, blocks_obstacle
from .reference import FUNCTIONS, attention_weights, laplace, toeplitz
from .torch_blockwise import blockwise_attention
from .torch_dense import dense_attention

__all__ = ["FUNCTIONS", "attention", "attention_weights", "chunked_attention", "laplace", "toeplitz"]

# Numbers of attention weights (batch x queries x keys). A dense call may hold the first in training, where going
# blockwise costs a second forward pass, and the second in evaluation, where it costs nothing; a block holds the second.
DENSE_LIMIT = {"cpu": (1 << 24, 1 << 20), "cuda": (1 << 28, 1 << 26)}

# From these numbers of weights on, in training and in evaluation, the compiled kernels are used where they work; below
# them their set-up costs more than they save (measured on a CPU).
NATIVE_FROM = (1 << 16, 1 << 12)

# Without vectors of eight numbers the products of "native_blocks" are slower than torch's.
FAST = cpu_level() not in (None, "baseline")
# From this many queries on it pays to pack a group's keys and values; float16 has to be widened first. Where PyTorch's
# dozen calls run on several threads or in bfloat16, the kernel's one is faster from few on, of any batch. (Measured.)
BLOCKS_FROM = {torch.float32: 16, torch.bfloat16: 16, torch.float16: 64}
FEW = 4


def _prefers_native(q: Tensor, weights: int) -> bool:
    return q.size(-2) > 1 and weights >= NATIVE_FROM[0 if torch.is_grad_enabled() else 1]


def _threads() -> int:
    return torch.get_num_threads()


# The compiler takes the number as it finds it, as those of ops/common/gpus.py.
_threads._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _prefers_blocks(q: Tensor, weights: int) -> bool:
    """Whether there is a group for every thread, and work enough in each."""
    if not FAST or q.dtype not in BLOCKS_FROM or math.prod(q.shape[:-2]) < _threads():
        return False
    if q.dtype == torch.bfloat16 or (q.dtype == torch.float32 and _threads() > 1):
        return q.size(-2) >= FEW and weights > 0
    return _prefers_native(q, weights) and q.size(-2) >= BLOCKS_FROM[q.dtype]


def _prefers_dense(q: Tensor, weights: int) -> bool:
    if q.size(-2) == 1:  # a single query has as many weights as keys
        return True
    return weights <= _dense_limits(q)[0 if torch.is_grad_enabled() else 1]


def _dense_limits(q: Tensor) -> Tuple[int, int]:
    return DENSE_LIMIT["cpu" if q.device.type == "cpu" else "cuda"]


# A call is q and its number of weights.
PATHS = Operator(
    "attention",
    Path("reference"),
    Path("torch_blockwise"),
    Path("torch", suits=_prefers_dense),
    Path("native", kernels_obstacle, DTYPES, suits=_prefers_native),
    Path("native_blocks", blocks_obstacle, DTYPES, suits=_prefers_blocks),
)


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    function: str = "softmax",
    bias: Optional[Tensor] = None,
    causal: bool = False,
    padding_mask: Optional[Tensor] = None,
    dropout: float = 0.0,
    drop_key: float = 0.0,
    scale: Optional[float] = None,
    path: Optional[str] = None,
) -> Tensor:
    """Attend with softmax, squared ReLU or Laplace weights: ``f(Q K^T / tau + b) V``.

    Args:
        q: (..., n, z), n or an axis before it may be 0.
        k: (..., m, z), m at least n if causal; without keys the result is 0.
        v: (..., m, v).
        function: "softmax" (tau = sqrt z), "relu2" or "laplace" (tau = number of keys the query sees).
        bias: relative bias b as the n + m - 1 values of its Toeplitz matrix, ``b[i, j] = bias[n - 1 + j - i]``.
        causal: queries are the last n positions of the keys and see no later ones.
        padding_mask: (..., m) bool, True = may not be attended to; k and v have to be finite there. Rows with nothing
            to attend to stay finite.
        dropout: probability of dropping an attention weight (pass 0 in evaluation).
        drop_key: probability, less than 1, that a query does not see a key (DropKey; pass 0 in evaluation): no
            rescaling, and a query that lost all its keys gives zeros.
        scale: a positive number in front of the product in the place of 1 / tau; None for that.
        path: "reference", "torch" (all weights at once), "torch_blockwise", "native" (compiled kernels between torch's
            products) or "native_blocks" (all in one, on a CPU) to force a path, "auto" for the choice made here (see
            NATIVE_FROM and DENSE_LIMIT), None for the environment's choice
            (see :mod:`fairseq_mega.ops.common.dispatch`).

    Returns:
        (..., n, v) in the dtype of v.

    Raises:
        ValueError: for an unknown function or path, a probability out of range, or a scale that is not positive.
        RuntimeError: if "native" is forced and the compiled kernels are missing, or for tensors on several devices.
        TypeError: if "native" is forced for float64.

    Source: MEGA (Ma et al., ICLR 2023), Eq. 11 and 16; DropKey: MEGALODON (Ma et al., 2024), its code.
    """
    if function not in FUNCTIONS:
        raise ValueError(
            f"unknown attention function {function!r} (argument `function`): choose from {', '.join(FUNCTIONS)}"
        )
    if not (0.0 <= dropout <= 1.0 and 0.0 <= drop_key < 1.0):
        raise ValueError(f"dropout and drop_key are probabilities, drop_key less than 1; found {dropout}, {drop_key}")
    if scale is not None and not 0.0 < scale < math.inf:
        raise ValueError(f"attention: scale must be a positive number, or None for that of the function; found {scale}")
    options: Dict[str, Any] = {
        "function": function,
        "bias": bias,
        "causal": causal,
        "padding_mask": padding_mask,
        "drop_key": drop_key,
        "scale": scale,
    }
    check_devices("attention", q=q, k=k, v=v, bias=bias, padding_mask=padding_mask)
    rows = q[..., 0].numel()  # batch x queries
    path = PATHS.choose(path, q, rows * k.size(-2))
    if rows * k.size(-2) == 0:  # there is no weight: an empty result or zeros, and gradients of zero
        weights = torch.matmul(q, k.transpose(-2, -1))
        return torch.matmul(weights if bias is None else weights + bias.sum(), v)
    if path == "reference":
        weights = attention_weights(q, k, **options)
        return torch.matmul(torch.dropout(weights, dropout, dropout > 0.0), v)
    options["dropout"] = dropout
    if path in ("native", "native_blocks"):
        return _of_groups(native_attention if path == "native" else blocks_attention, q, k, v, **options)
    if path == "torch":
        return dense_attention(q, k, v, **options)
    weights_per_query = rows // q.size(-2) * k.size(-2)
    return blockwise_attention(q, k, v, **options, block_size=max(16, _dense_limits(q)[1] // weights_per_query))


def _of_groups(
    run: Callable[..., Tensor],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    padding_mask: Optional[Tensor],
    scale: Optional[float],
    **options: Any,
) -> Tensor:
    """Call compiled kernels, which know one axis of groups, with tensors of the type that autocast asks for."""
    if torch.is_autocast_enabled(q.device.type):
        dtype = torch.get_autocast_dtype(q.device.type)
        q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
    if scale is None:  # the kernels understand 0 as one over the number of keys that a query sees
        scale = 1.0 / math.sqrt(q.size(-1)) if options["function"] == "softmax" else 0.0
    leading, keys, seed = q.shape[:-2], k.size(-2), None
    padding = None if padding_mask is None else padding_mask.expand(*leading, keys).reshape(-1, keys)
    if options["dropout"] > 0.0 or options["drop_key"] > 0.0:
        seed = draw_seed(q.device)
    flat = (x.expand(*leading, -1, -1).flatten(0, -3) if leading else x[None] for x in (q, k, v))
    out = run(*flat, padding=padding, seed=seed, scale=scale, **options)
    return out.view(*leading, *out.shape[1:])


def chunked_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    chunk_size: int,
    *,
    function: str = "softmax",
    bias: Optional[Tensor] = None,
    causal: bool = False,
    padding_mask: Optional[Tensor] = None,
    dropout: float = 0.0,
    drop_key: float = 0.0,
    scale: Optional[float] = None,
    path: Optional[str] = None,
) -> Tensor:
    """Attend within consecutive chunks of ``chunk_size`` positions; the last chunk may be shorter.

    Args:
        q, k, v: (B, L, z), (B, L, z), (B, L, v).
        chunk_size: C, at least 1.
        bias: the 2C - 1 values of the relative bias of one chunk.
        padding_mask: (B, L) bool, True = padding.
        function, causal, dropout, drop_key, scale, path: as in :func:`attention`.

    Returns:
        (B, L, v).

    Source: MEGA, section 3.4.
    """
    length = q.size(1)
    rest = length % chunk_size
    options: Dict[str, Any] = {
        "function": function,
        "causal": causal,
        "dropout": dropout,
        "drop_key": drop_key,
        "scale": scale,
        "path": path,
    }
    if length == 0:
        return attention(q, k, v, bias=bias, padding_mask=padding_mask, **options)
    outputs = []
    if length > rest:

        def chunks(x: Tensor) -> Tensor:
            return x[:, : length - rest].unflatten(1, (-1, chunk_size))

        mask = None if padding_mask is None else chunks(padding_mask)
        full = attention(chunks(q), chunks(k), chunks(v), bias=bias, padding_mask=mask, **options)
        outputs.append(full.flatten(1, 2))
    if rest > 0:
        tail = None if bias is None else bias[chunk_size - rest : chunk_size + rest - 1]
        mask = None if padding_mask is None else padding_mask[:, -rest:]
        outputs.append(attention(q[:, -rest:], k[:, -rest:], v[:, -rest:], bias=tail, padding_mask=mask, **options))
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=1)
