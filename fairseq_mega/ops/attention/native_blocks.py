"""Attention of many short sequences or chunks on a CPU: one kernel for products, weights and products again.

Threads share the groups. The numbers of a block of queries stay in cache; bfloat16 is multiplied as such where the CPU
can, with sums in float32. Memory for a group is kept by each thread; backward computes the weights again.
"""

import math
from typing import Any, Optional, Tuple

import torch
from torch import Tensor

from fairseq_mega.ops import native
from fairseq_mega.ops.dispatch import kernels_obstacle

from .native import flattened, visible_counts
from .reference import FUNCTIONS

# Without vectors of eight numbers its products are slower than torch's.
FAST = native.cpu_level() not in (None, "baseline")
# From this many queries on it pays to pack a group's keys and values; float16 has to be widened first. (Measured.)
FROM_QUERIES = {torch.float32: 16, torch.bfloat16: 16, torch.float16: 64}


def _threads() -> int:
    return torch.get_num_threads()


# The compiler takes the number as it finds it, as those of ops/gpus.py.
_threads._dynamo_marked_constant = True  # type: ignore[attr-defined]


def prefers_blocks(q: Tensor) -> bool:
    """Whether there is a group for every thread, and work enough in each."""
    return FAST and q.size(-2) >= FROM_QUERIES[q.dtype] and math.prod(q.shape[:-2]) >= _threads()


def blocks_obstacle(q: Tensor, *call: Any) -> Optional[str]:
    """The obstacle of this path: its kernels are those of a CPU."""
    if q.device.type != "cpu":
        return f"it is for tensors on a CPU, found {q.device.type}; use native"
    return kernels_obstacle(q)


def blocks_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    function: str,
    bias: Optional[Tensor],
    causal: bool,
    padding_mask: Optional[Tensor],
    dropout: float,
    drop_key: float,
    scale: Optional[float] = None,
) -> Tensor:
    """Attention group by group; arguments and result as :func:`fairseq_mega.ops.attention.attention`.

    What is dropped is what the path "native" drops. Results do not depend on the number of threads.
    """
    flat = flattened(q, k, v, function, padding_mask, dropout > 0.0 or drop_key > 0.0, scale)
    dtype, shared = flat.v.dtype, torch.promote_types(torch.promote_types(flat.q.dtype, flat.k.dtype), flat.v.dtype)
    out, _ = torch.ops.fairseq_mega.attention_groups(
        *(tensor.to(shared) for tensor in flat[:3]),
        None if bias is None else bias.to(torch.float32),
        flat.padding,
        None if flat.padding is None else visible_counts(flat.padding, q.size(-2), causal),
        flat.seed,
        FUNCTIONS.index(function),
        causal,
        flat.scale,
        dropout,
        drop_key,
    )
    return out.to(dtype).view(*q.shape[:-2], *out.shape[1:])


def _fake(q: Tensor, k: Tensor, v: Tensor, *options: Any) -> Tuple[Tensor, Tensor]:
    rows = q.size(1) if FUNCTIONS[options[4]] == "softmax" else 0
    statistics = q.new_empty(q.size(0), rows, 2, dtype=torch.float32)
    return v.new_empty(q.size(0), q.size(1), v.size(2)), statistics


def _fake_backward(
    grad_out: Tensor, q: Tensor, k: Tensor, v: Tensor, bias: Optional[Tensor], *options: Any
) -> Tuple[Tensor, ...]:
    packed = [tensor.new_empty(tensor.shape) for tensor in (q, k, v)]
    return (*packed, q.new_empty(0 if bias is None else bias.size(0), dtype=torch.float32))


def _keep(ctx: Any, inputs: Tuple[Any, ...], output: Tuple[Tensor, Tensor]) -> None:
    ctx.options = inputs[7:]
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[:7], output[1])


def _gradients(ctx: Any, grad_out: Optional[Tensor], _: Any) -> Tuple[Optional[Tensor], ...]:
    if grad_out is None:
        return (None,) * 12
    *found, grad_bias = torch.ops.fairseq_mega.attention_groups_backward(grad_out, *ctx.saved_tensors, *ctx.options)
    return (*found, None if ctx.saved_tensors[3] is None else grad_bias, *(None,) * 8)


if native.PROBLEM is None:  # the simulator of the tests has kernels for GPUs only
    _NAME = f"{native.NAMESPACE}::attention_groups"
    torch.library.register_fake(_NAME, _fake)
    torch.library.register_fake(f"{_NAME}_backward", _fake_backward)
    torch.library.register_autograd(_NAME, _gradients, setup_context=_keep)
