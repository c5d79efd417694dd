"""Attention of many short sequences or chunks on a CPU: one kernel for products, weights and products again.

Threads share the groups, and each thread keeps memory for one group. The numbers of a block of queries stay in cache.
CPUs with instructions for bfloat16 multiply bfloat16 directly, with sums in float32. The backward pass computes the
weights again.
"""

from typing import Any, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor

from fairseq_mega.ops.common import native
from fairseq_mega.ops.common.dispatch import kernels_unavailable
from fairseq_mega.ops.common.operations import attention_operations, count

from .reference import FUNCTIONS


def blocks_unavailable(q: Tensor, *call: Any) -> Optional[str]:
    """Return the reason why this path cannot run, for instance a tensor outside a CPU; None if it can."""
    if q.device.type != "cpu":
        return f"it is for tensors on a CPU, found {q.device.type}; use native"
    return kernels_unavailable(q)


def visible_counts(padding: Tensor, queries: int, causal: bool) -> Tensor:
    """Return the number of unpadded keys that each query may attend to: (G, n) int32, from the padding (G, m)."""
    if causal:
        return (~padding).cumsum(-1, dtype=torch.int32)[:, padding.size(1) - queries :].contiguous()
    return (~padding).sum(-1, keepdim=True, dtype=torch.int32).expand(-1, queries).contiguous()


class Arguments(NamedTuple):
    """Arguments of the compiled attention of groups, in the order of its operator."""

    q: Tensor  # (G, n, z)
    k: Tensor  # (G, m, z)
    v: Tensor  # (G, m, v)
    bias: Optional[Tensor]  # (n + m - 1,)
    padding: Optional[Tensor]  # (G, m) bool, True = padding
    seed: Optional[Tensor]  # seed of the dropout, None where nothing is dropped
    function: str
    causal: bool
    dropout: float
    drop_key: float
    scale: float  # factor of the product; 0 for one over the number of keys that a query sees


def blocks_attention(a: Arguments) -> Tensor:
    """Attention (G, n, v), group by group.

    The same weights are dropped as by the path "native". Results do not depend on the number of threads.
    """
    dtype = torch.promote_types(torch.promote_types(a.q.dtype, a.k.dtype), a.v.dtype)
    out, _ = native.operators.attention_groups(
        a.q.to(dtype),
        a.k.to(dtype),
        a.v.to(dtype),
        None if a.bias is None else a.bias.to(torch.float32),
        a.padding,
        None if a.padding is None else visible_counts(a.padding, a.q.size(1), a.causal),
        a.seed,
        FUNCTIONS.index(a.function),
        a.causal,
        a.scale,
        a.dropout,
        a.drop_key,
    )
    return out.to(a.v.dtype)


def forward_operations(shapes: Sequence[Any], causal: bool) -> float:
    """Return the operations of an attention, from the shapes of its tensors."""
    q, k, v = shapes[:3]
    return q[0] * attention_operations(q[2] + v[2], q[1], k[1], causal)


def backward_operations(shapes: Sequence[Any], causal: bool) -> float:
    """Return the operations of its gradients: the weights again, and the products of four gradients."""
    q, k, v = shapes[:3]
    return q[0] * attention_operations(3 * q[2] + 2 * v[2], q[1], k[1], causal)


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
    saved = ctx.saved_tensors  # read once: a recomputed layer refuses a second read
    *found, grad_bias = torch.ops.fairseq_mega.attention_groups_backward(grad_out, *saved, *ctx.options)
    return (*found, None if saved[3] is None else grad_bias, *(None,) * 8)


if native.PROBLEM is None:  # the simulator of the tests has kernels for GPUs only
    _NAME = f"{native.NAMESPACE}::attention_groups"
    torch.library.register_fake(_NAME, _fake)
    torch.library.register_fake(f"{_NAME}_backward", _fake_backward)
    native.register_gradients(_NAME, _gradients, _keep)
    count(
        attention_groups=lambda *arguments: forward_operations(arguments, arguments[8]),
        attention_groups_backward=lambda grad, *arguments: backward_operations(arguments, arguments[9]),
    )
