"""Attention block by block with the compiled kernels between the matrix products: no L x L matrix, any function.

A block of queries is multiplied with its keys into a buffer that stays in the processor's cache; the kernel turns the
buffer into weights (see csrc/attention); a second product applies them to the values. The backward pass stands in
:mod:`.native_backward`.
"""

import math
from typing import Any, Callable, Dict, Iterator, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from fairseq_mega.ops.common import native

from .native_blocks import visible_counts
from .reference import FUNCTIONS

# Attention weights (groups x queries x keys) of a block: on a CPU they should stay in its cache; on a GPU a block has
# to fill the device. A product of fewer queries than MIN_QUERIES would repack the keys too often.
BLOCK_WEIGHTS = {"cpu": 1 << 17, "cuda": 1 << 24}
MIN_QUERIES = 128


class Block(NamedTuple):
    """Queries ``rows`` of the groups ``groups``, and the first ``keys`` keys."""

    groups: slice
    rows: slice
    keys: int

    @property
    def shape(self) -> Tuple[int, int, int]:
        return self.groups.stop - self.groups.start, self.rows.stop - self.rows.start, self.keys


def blocks(groups: int, queries: int, keys: int, causal: bool, device: torch.device) -> Iterator[Block]:
    """Blocks that cover all queries; a group's last queries, which see all of its keys, come first."""
    limit = BLOCK_WEIGHTS["cpu" if device.type == "cpu" else "cuda"]
    if queries * keys <= limit:
        step, rows = limit // (queries * keys), queries
    else:
        step, rows = 1, min(queries, max(MIN_QUERIES, limit // keys))
    for group in range(0, groups, step):
        for stop in range(queries, 0, -rows):
            block = slice(group, min(group + step, groups)), slice(max(0, stop - rows), stop)
            yield Block(*block, keys - queries + stop if causal else keys)


def multiply(a: Tensor, b: Tensor, out: Tensor) -> None:
    """Batched product into ``out``, whose type may be wider than that of the factors."""
    if a.dtype == out.dtype:
        torch.bmm(a, b, out=out)
    else:
        torch.bmm(a, b, out_dtype=out.dtype, out=out)


def working_dtype(q: Tensor) -> torch.dtype:
    """Type of the products' factors: CPUs multiply float32 fastest, GPUs whatever the tensors are."""
    return torch.float32 if q.device.type == "cpu" else q.dtype


class Call:
    """The kernels' arguments and the buffers of a block, which forward and backward share."""

    def __init__(
        self,
        q: Tensor,
        k: Tensor,
        bias: Optional[Tensor],
        padding: Optional[Tensor],
        seed: Optional[Tensor],
        function: str,
        causal: bool,
        dropout: float,
        drop_key: float,
        scale: float,
    ) -> None:
        groups, queries, _ = q.shape
        keys = k.size(1)
        if bias is None:
            bias = torch.zeros(queries + keys - 1, device=q.device)
        self.dtype = working_dtype(q)
        self.blocks = list(blocks(groups, queries, keys, causal, q.device))
        self.largest = max(math.prod(block.shape) for block in self.blocks)
        self.arguments: Dict[str, Any] = {
            "bias": bias.to(torch.float32).contiguous(),
            "padding": None if padding is None else padding.contiguous(),
            "counts": None if padding is None else visible_counts(padding, queries, causal),
            "seed": seed,
            "function": FUNCTIONS.index(function),
            "causal": causal,
            "scale": scale,
            "dropout": dropout,
            "drop_key": drop_key,
            "queries": queries,
        }

    def buffer(self, dtype: torch.dtype, like: Tensor) -> Tensor:
        return torch.empty(self.largest, dtype=dtype, device=like.device)


def view(buffer: Tensor, block: Block) -> Tensor:
    return buffer[: math.prod(block.shape)].view(block.shape)


def _forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Optional[Tensor],
    padding: Optional[Tensor],
    seed: Optional[Tensor],
    function: str,
    causal: bool,
    dropout: float,
    drop_key: float,
    scale: float,
) -> Tuple[Tensor, Tensor]:
    call = Call(q, k, bias, padding, seed, function, causal, dropout, drop_key, scale)
    groups, queries = q.shape[:2]
    softmax = function == "softmax"
    statistics = torch.empty(groups, queries if softmax else 0, 2, dtype=torch.float32, device=q.device)
    result = torch.empty(groups, queries, v.size(2), dtype=call.dtype, device=q.device)
    q, k, factor = q.to(call.dtype), k.to(call.dtype), v.to(call.dtype)
    buffer = call.buffer(torch.float32, q)
    narrow = None if call.dtype == torch.float32 else call.buffer(call.dtype, q)
    run = native.operators.attention_weights_
    for block in call.blocks:
        logits = view(buffer, block)
        multiply(q[block.groups, block.rows], k[block.groups, : block.keys].transpose(1, 2), logits)
        weights = None if narrow is None else view(narrow, block)
        run(
            logits,
            weights,
            statistics=statistics if softmax else None,
            first_group=block.groups.start,
            first_row=block.rows.start,
            **call.arguments,
        )
        applied = logits if weights is None else weights
        multiply(applied, factor[block.groups, : block.keys], result[block.groups, block.rows])
    return result.to(v.dtype), statistics


_attention = torch.library.custom_op("fairseq_mega::attention", _forward, mutates_args=())


@_attention.register_fake
def _(q, k, v, bias, padding, seed, function, causal, dropout, drop_key, scale):
    rows = q.size(1) if function == "softmax" else 0
    return q.new_empty(q.size(0), q.size(1), v.size(2), dtype=v.dtype), q.new_empty(
        q.size(0), rows, 2, dtype=torch.float32
    )


def _save(ctx: Any, inputs: Tuple[Any, ...], output: Tuple[Tensor, Tensor]) -> None:
    ctx.options = inputs[6:]
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[:6], output[1])


def _gradients(ctx: Any, grad_out: Optional[Tensor], _: Any) -> Tuple[Optional[Tensor], ...]:
    if grad_out is None:
        return (None,) * 11
    q, k, v, bias, padding, seed, statistics = ctx.saved_tensors
    grad_q, grad_k, grad_v, grad_bias = torch.ops.fairseq_mega.attention_backward(  # see native_backward.py
        grad_out, q, k, v, bias, padding, seed, statistics, *ctx.options
    )
    return grad_q, grad_k, grad_v, None if bias is None else grad_bias, *(None,) * 7


native.register_gradients(f"{native.NAMESPACE}::attention", _gradients, _save)


def _register(namespace: str) -> None:
    torch.library.register_fake(f"{namespace}::attention_weights_", lambda *args, **kwargs: None)


native.register(_register)


def native_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    function: str,
    bias: Optional[Tensor],
    causal: bool,
    padding: Optional[Tensor],
    seed: Optional[Tensor],
    dropout: float,
    drop_key: float,
    scale: float,
) -> Tensor:
    """Attention (G, n, v) of groups (G, n, z), (G, m, z), (G, m, v) with padding (G, m), by the compiled kernels.

    Memory grows with n + m, in training too. What is dropped follows torch's seed, but differs from the torch paths.
    """
    run: Callable[..., Tuple[Tensor, Tensor]] = _attention
    if not torch.compiler.is_compiling() and not torch.is_grad_enabled():
        run = _forward  # decoding makes many small calls: the dispatcher costs as much as they do
    return run(q, k, v, bias, padding, seed, function, causal, dropout, drop_key, scale)[0]
