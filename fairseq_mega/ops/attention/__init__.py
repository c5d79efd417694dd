"""Single-head attention of MEGA (section 3.2): :func:`attention`, its chunked form, paths; that of several heads."""

import math
from typing import Any, Callable, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_mega.ops.activation import silu
from fairseq_mega.ops.common.dispatch import Operator, Path, kernels_unavailable
from fairseq_mega.ops.common.native import DTYPES, reaches
from fairseq_mega.ops.common.transforms import is_transformed
from fairseq_mega.ops.dropout import draw_seed

from .native import native_attention
from .native_blocks import Arguments, blocks_attention, blocks_unavailable
from .reference import FUNCTIONS, Options, attention_weights, laplace, toeplitz
from .torch_blockwise import blockwise_attention
from .torch_dense import dense_attention
from .triton_flash import multiplies_by_gate, prefers_triton, triton_attention, triton_unavailable

__all__ = [
    "FUNCTIONS",
    "Options",
    "attention",
    "attention_weights",
    "chunked_attention",
    "joins_gate",
    "laplace",
    "multi_head_attention",
    "toeplitz",
]

# Most attention weights (batch x queries x keys) in memory at once. The first number is for a dense call in training,
# where computing block by block costs a second forward pass. The second is for a dense call in evaluation, where blocks
# cost nothing, and for a block.
DENSE_LIMIT = {"cpu": (1 << 24, 1 << 20), "cuda": (1 << 28, 1 << 26)}

# From these numbers of weights on, in training and in evaluation, the compiled kernels are used where they can run;
# below, their set-up costs more than the kernels save (measured on a CPU).
NATIVE_FROM = (1 << 16, 1 << 12)

# Without vectors of eight numbers the products of "native_blocks" are slower than torch's.
FAST = reaches("avx2")
# From this many queries on, packing a group's keys and values saves time; float16 must be widened first. Where
# PyTorch's dozen calls run on several threads or in bfloat16, the kernel's single call is faster even for few queries,
# for any batch. (Measured.)
BLOCKS_FROM = {torch.float32: 16, torch.bfloat16: 16, torch.float16: 64}
FEW = 4

FAR = -1e30  # logit of a key outside a window; finite, since a block of keys may have no other


def _prefers_native(q: Tensor, weights: int, *call: Any) -> bool:
    return q.size(-2) > 1 and weights >= NATIVE_FROM[0 if torch.is_grad_enabled() else 1]


def _threads() -> int:
    return torch.get_num_threads()


# The compiler treats the number as a constant, like gpu_unsupported of ops/common/gpus.py.
_threads._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _prefers_blocks(q: Tensor, weights: int, *call: Any) -> bool:
    """Return whether there is a group for every thread, with enough work in each."""
    if not FAST or q.dtype not in BLOCKS_FROM or math.prod(q.shape[:-2]) < _threads():
        return False
    if q.dtype == torch.bfloat16 or (q.dtype == torch.float32 and _threads() > 1):
        return q.size(-2) >= FEW and weights > 0
    return _prefers_native(q, weights) and q.size(-2) >= BLOCKS_FROM[q.dtype]


def _prefers_torch(q: Tensor, weights: int, *call: Any) -> bool:
    return not is_transformed()  # torch's fused attention has no forward-mode derivatives


def _prefers_dense(q: Tensor, weights: int, *call: Any) -> bool:
    if not _prefers_torch(q, weights):
        return False
    if q.size(-2) == 1:  # a single query has as many weights as keys
        return True
    return weights <= _dense_limits(q)[0 if torch.is_grad_enabled() else 1]


def _dense_limits(q: Tensor) -> Tuple[int, int]:
    return DENSE_LIMIT["cpu" if q.device.type == "cpu" else "cuda"]


# The arguments of a call are q, its number of weights, and the values' number of features.
PATHS = Operator(
    "attention",
    Path("reference"),
    Path("torch_blockwise", suits=_prefers_torch),
    Path("torch", suits=_prefers_dense),
    Path("native", kernels_unavailable, DTYPES, suits=_prefers_native),
    Path("native_blocks", blocks_unavailable, DTYPES, suits=_prefers_blocks),
    Path("triton", triton_unavailable, DTYPES, suits=prefers_triton),
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
    gate: Optional[Tensor] = None,
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
        padding_mask: (..., m) bool, True = may not be attended to; k and v must be finite there. Rows with nothing to
            attend to stay finite.
        dropout: probability of dropping an attention weight (pass 0 in evaluation).
        drop_key: probability, less than 1, that a query does not see a key (DropKey; pass 0 in evaluation): no
            rescaling, and a query that lost all its keys returns zeros.
        scale: a positive factor of the product; None for 1 / tau.
        gate: (..., n, v), whose SiLU multiplies the result; None for one. See :func:`joins_gate`.
        path: "reference", "torch" (all weights at once), "torch_blockwise", "native" (compiled kernels between torch's
            products), "native_blocks" (one kernel, on a CPU) or "triton" (kernels that write no weights to memory, on a
            GPU) to force a path, "auto" for the choice made here (see NATIVE_FROM and DENSE_LIMIT), None for the
            environment's choice (see :mod:`fairseq_mega.ops.common.dispatch`).

    Returns:
        (..., n, v) in the dtype of v.

    Raises:
        ValueError: for an unknown function or path, a probability out of range, or a scale that is not positive.
        RuntimeError: if "native" is forced and the compiled kernels are missing.
        TypeError: if "native" is forced for float64.

    Source: MEGA (Ma et al., ICLR 2023), Eq. 11 and 16; DropKey: MEGALODON (Ma et al., 2024), its code.
    """
    return _attend(q, k, v, Options(function, bias, causal, padding_mask, dropout, drop_key, scale), path, gate)


def joins_gate(q: Tensor, v: Tensor) -> bool:
    """Return whether one kernel computes the attention of these queries and values, and multiplies it by a gate."""
    path, width = PATHS.forced(), v.size(-1)
    chosen = path == "triton" or (path == "auto" and prefers_triton(q, 0, width) and triton_unavailable(q) is None)
    return chosen and multiplies_by_gate(q, width)


def _attend(
    q: Tensor, k: Tensor, v: Tensor, options: Options, path: Optional[str], gate: Optional[Tensor] = None
) -> Tensor:
    """Choose a path, and compute :func:`attention` by it."""
    if options.function not in FUNCTIONS:
        raise ValueError(
            f"unknown attention function {options.function!r} (argument `function`): choose from {', '.join(FUNCTIONS)}"
        )
    if not (0.0 <= options.dropout <= 1.0 and 0.0 <= options.drop_key < 1.0):
        raise ValueError(
            f"dropout and drop_key are probabilities, drop_key less than 1; found {options.dropout}, {options.drop_key}"
        )
    if options.scale is not None and not 0.0 < options.scale < math.inf:
        raise ValueError(
            f"attention: scale must be a positive number, or None for the function's own; found {options.scale}"
        )
    bias, dropout = options.bias, options.dropout
    rows = q[..., 0].numel()  # batch x queries
    path = PATHS.choose(path, q, rows * k.size(-2), v.size(-1))
    joins = path == "triton" and rows * k.size(-2) > 0 and multiplies_by_gate(q, v.size(-1))
    if gate is not None and not joins:
        return silu(gate, _attend(q, k, v, options, path))
    if rows * k.size(-2) == 0:  # no weights: an empty result or zeros, and gradients of zero
        weights = torch.matmul(q, k.transpose(-2, -1))
        return torch.matmul(weights if bias is None else weights + bias.sum(), v)
    if path == "reference":
        return torch.matmul(torch.dropout(attention_weights(q, k, options), dropout, dropout > 0.0), v)
    run = {"native": native_attention, "native_blocks": blocks_attention, "triton": triton_attention}.get(path)
    if run is not None:
        return _of_groups(run, q, k, v, options, gate)
    if path == "torch":
        return dense_attention(q, k, v, options)
    weights_per_query = rows // q.size(-2) * k.size(-2)
    return blockwise_attention(q, k, v, options, block_size=max(16, _dense_limits(q)[1] // weights_per_query))


def _of_groups(
    run: Callable[..., Tensor], q: Tensor, k: Tensor, v: Tensor, options: Options, gate: Optional[Tensor]
) -> Tensor:
    """Call compiled kernels, which accept one axis of groups, with tensors of autocast's type."""
    function, bias, causal, padding_mask, dropout, drop_key, scale = options
    if torch.is_autocast_enabled(q.device.type):
        dtype = torch.get_autocast_dtype(q.device.type)
        q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
    if scale is None:  # the kernels read 0 as one over the number of keys that a query sees
        scale = 1.0 / math.sqrt(q.size(-1)) if function == "softmax" else 0.0
    leading, keys = q.shape[:-2], k.size(-2)
    padding = None if padding_mask is None else padding_mask.expand(*leading, keys).reshape(-1, keys)
    seed = draw_seed(q.device) if dropout > 0.0 or drop_key > 0.0 else None
    q, k, v = (x.expand(*leading, -1, -1).flatten(0, -3) if leading else x[None] for x in (q, k, v))
    arguments = Arguments(q, k, v, bias, padding, seed, function, causal, dropout, drop_key, scale)
    out = run(arguments) if gate is None else run(arguments, gate.flatten(0, -3) if leading else gate[None])
    return out.view(*leading, *out.shape[1:])


def chunked_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    chunk_size: int,
    *,
    gate: Optional[Tensor] = None,
    path: Optional[str] = None,
    **options: Any,
) -> Tensor:
    """Attend within consecutive chunks of ``chunk_size`` positions; the last chunk may be shorter.

    Args:
        q, k, v: (B, n, z), (B, L, z), (B, L, v); the queries are those of the last n positions.
        chunk_size: C, at least 1.
        gate: (B, n, v).
        path, options: as in :func:`attention`, as is the gate, but ``bias`` has the 2C - 1 values of one chunk.

    Returns:
        (B, n, v).

    Source: MEGA, section 3.4.
    """
    given = Options(**options)
    bias, padding_mask = given.bias, given.padding_mask
    length = k.size(1)
    past = length - q.size(1)
    if past > 0:  # queries of the past, whose results are dropped, align the chunks with keys
        q, gate = (None if x is None else F.pad(x, (0, 0, past, 0)) for x in (q, gate))  # type: ignore[assignment]
        return chunked_attention(q, k, v, chunk_size, gate=gate, path=path, **options)[:, past:]
    rest = length % chunk_size
    if length == 0:
        return _attend(q, k, v, given, path, gate)
    outputs = []
    if length > rest:

        def chunks(x: Tensor) -> Tensor:
            return x[:, : length - rest].unflatten(1, (-1, chunk_size))

        mask = None if padding_mask is None else chunks(padding_mask)
        gates = None if gate is None else chunks(gate)
        full = _attend(chunks(q), chunks(k), chunks(v), given._replace(padding_mask=mask), path, gates)
        outputs.append(full.flatten(1, 2))
    if rest > 0:
        tail = None if bias is None else bias[chunk_size - rest : chunk_size + rest - 1]
        mask = None if padding_mask is None else padding_mask[:, -rest:]
        given = given._replace(bias=tail, padding_mask=mask)
        gates = None if gate is None else gate[:, -rest:]
        outputs.append(_attend(q[:, -rest:], k[:, -rest:], v[:, -rest:], given, path, gates))
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=1)


def multi_head_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    padding_mask: Optional[Tensor] = None,
    dropout: float = 0.0,
    window: Optional[int] = None,
) -> Tensor:
    """Attend with the softmax weights of several heads, as the Transformer does.

    The path is "native_blocks" on a CPU, where torch's fused attention needs up to twice its time, and writes all
    weights to memory if some are dropped. It is "torch" elsewhere, unless the environment names one, see
    :func:`attention`.

    Args:
        q: (B, H, n, z).
        k, v: (B, H, m, z).
        causal, dropout: as in :func:`attention`.
        padding_mask: (B, m) bool, True = may not be attended to.
        window: last keys that a query sees, its own among them, None for all; all weights are computed.

    Returns:
        (B, H, n, z).

    Source: Vaswani et al., 2017, section 3.2.
    """
    mask = None if padding_mask is None else padding_mask.unsqueeze(1)
    path = PATHS.forced()
    if path == "auto" and (blocks_unavailable(q) is not None or not _prefers_blocks(q, q[..., 0].numel() * k.size(-2))):
        path = "reference" if is_transformed() else "torch"
    bias = None
    if window is not None and window < k.size(-2):
        bias = q.new_zeros(q.size(-2) + k.size(-2) - 1)
        bias[: k.size(-2) - window] = FAR
    return _attend(q, k, v, Options(bias=bias, causal=causal, padding_mask=mask, dropout=dropout), path)
