"""Attention block by block with the compiled kernels between the matrix products: no L x L matrix, any function.

A block of queries is multiplied with its keys into a buffer that stays in the processor's cache; the kernel turns the
buffer into weights (see csrc/attention); a second product applies them to the values. The backward pass computes the
weights again, block by block, from two numbers per query.
"""

import math
from typing import Any, Callable, Dict, Iterator, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from fairseq_mega.ops.common import native
from fairseq_mega.ops.common.operations import count

from .native_blocks import Arguments, backward_operations, forward_operations, visible_counts
from .reference import FUNCTIONS

# Attention weights (groups x queries x keys) of a block: on a CPU they should stay in its cache; on a GPU a block must
# fill the device. A product of fewer queries than MIN_QUERIES would repack the keys too often.
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
    """Write a batched product into ``out``, whose type may be wider than the factors'."""
    if a.dtype == out.dtype:
        torch.bmm(a, b, out=out)
    else:
        torch.bmm(a, b, out_dtype=out.dtype, out=out)


def working_dtype(q: Tensor) -> torch.dtype:
    """Return the type of the products' factors: float32 on CPUs, where it is fastest, the tensors' own on GPUs."""
    return torch.float32 if q.device.type == "cpu" else q.dtype


class Call:
    """The kernels' arguments and the buffers of a block, for the forward and the backward pass."""

    def __init__(self, a: Arguments) -> None:
        groups, queries, _ = a.q.shape
        keys = a.k.size(1)
        bias = torch.zeros(queries + keys - 1, device=a.q.device) if a.bias is None else a.bias
        self.dtype = working_dtype(a.q)
        self.blocks = list(blocks(groups, queries, keys, a.causal, a.q.device))
        self.largest = max(math.prod(block.shape) for block in self.blocks)
        self.arguments: Dict[str, Any] = {
            "bias": bias.to(torch.float32).contiguous(),
            "padding": None if a.padding is None else a.padding.contiguous(),
            "counts": None if a.padding is None else visible_counts(a.padding, queries, a.causal),
            "seed": a.seed,
            "function": FUNCTIONS.index(a.function),
            "causal": a.causal,
            "scale": a.scale,
            "dropout": a.dropout,
            "drop_key": a.drop_key,
            "queries": queries,
        }

    def buffer(self, dtype: torch.dtype, like: Tensor) -> Tensor:
        return torch.empty(self.largest, dtype=dtype, device=like.device)


def view(buffer: Tensor, block: Block) -> Tensor:
    return buffer[: math.prod(block.shape)].view(block.shape)


# The operators' arguments, see Arguments.
SCHEMA = "Tensor q, Tensor k, Tensor v, Tensor? bias, Tensor? padding, Tensor? seed, "
SCHEMA += "str function, bool causal, float dropout, float drop_key, float scale"


def _forward(a: Arguments) -> Tuple[Tensor, Tensor]:
    call, q, v = Call(a), a.q, a.v
    groups, queries = q.shape[:2]
    softmax = a.function == "softmax"
    statistics = torch.empty(groups, queries if softmax else 0, 2, dtype=torch.float32, device=q.device)
    result = torch.empty(groups, queries, v.size(2), dtype=call.dtype, device=q.device)
    q, k, factor = q.to(call.dtype), a.k.to(call.dtype), v.to(call.dtype)
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


def forward_of(*arguments: Any) -> Tuple[Tensor, Tensor]:
    """The attention and its statistics; arguments as :class:`Arguments` has them."""
    return _forward(Arguments(*arguments))


_attention = torch.library.custom_op(
    "fairseq_mega::attention",
    forward_of,
    mutates_args=(),
    schema=f"({SCHEMA}) -> (Tensor, Tensor)",
)


@_attention.register_fake
def _(*arguments: Any) -> Tuple[Tensor, Tensor]:
    a = Arguments(*arguments)
    groups, queries, _ = a.q.shape
    rows = queries if a.function == "softmax" else 0
    out = a.q.new_empty(groups, queries, a.v.size(2), dtype=a.v.dtype)
    return out, a.q.new_empty(groups, rows, 2, dtype=torch.float32)


def accumulate(total: Tensor, a: Tensor, b: Tensor, first: bool) -> None:
    """Add a batched product to ``total``, or write the product into it."""
    if a.dtype == total.dtype:
        torch.baddbmm(total, a, b, beta=0.0 if first else 1.0, out=total)
    elif first:
        multiply(a, b, total)
    else:
        product = torch.empty_like(total)
        multiply(a, b, product)
        total += product


def _backward(grad_out: Tensor, statistics: Tensor, a: Arguments) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    call, bias = Call(a), a.bias
    q, k, v = a.q, a.k, a.v
    types = q.dtype, k.dtype, v.dtype
    q, k, v, grad_out = (tensor.to(call.dtype) for tensor in (q, k, v, grad_out.contiguous()))
    grad_bias = None if bias is None else torch.zeros(bias.size(0), dtype=torch.float64, device=q.device)
    several = any(block.rows != slice(0, q.size(1)) for block in call.blocks)
    total = torch.float32 if several else call.dtype  # sums over blocks are rounded once
    grad_q = torch.empty_like(q, memory_format=torch.contiguous_format)
    grad_k, grad_v = (torch.empty(tensor.shape, dtype=total, device=q.device) for tensor in (k, v))
    buffer, grad_buffer = call.buffer(torch.float32, q), call.buffer(torch.float32, q)
    narrow: Tuple[Optional[Tensor], Optional[Tensor]] = (None, None)
    if call.dtype != torch.float32:
        narrow = call.buffer(call.dtype, q), call.buffer(call.dtype, q)
    run = native.operators.attention_weights_backward_
    for block in call.blocks:
        here = block.groups, slice(0, block.keys)
        first = block.rows.stop == q.size(1)
        logits, grad_weights = view(buffer, block), view(grad_buffer, block)
        multiply(q[block.groups, block.rows], k[here].transpose(1, 2), logits)
        multiply(grad_out[block.groups, block.rows], v[here].transpose(1, 2), grad_weights)
        weights, grad_logits = (None if tensor is None else view(tensor, block) for tensor in narrow)
        run(
            logits,
            grad_weights,
            weights,
            grad_logits,
            grad_bias,
            statistics=statistics if a.function == "softmax" else None,
            first_group=block.groups.start,
            first_row=block.rows.start,
            **call.arguments,
        )
        weights = logits if weights is None else weights
        grad_logits = grad_weights if grad_logits is None else grad_logits
        multiply(grad_logits, k[here], grad_q[block.groups, block.rows])
        accumulate(grad_k[here], grad_logits.transpose(1, 2), q[block.groups, block.rows], first)
        accumulate(grad_v[here], weights.transpose(1, 2), grad_out[block.groups, block.rows], first)
    vector = q.new_empty(0) if bias is None or grad_bias is None else grad_bias.to(bias.dtype)
    return grad_q.to(types[0]), grad_k.to(types[1]), grad_v.to(types[2]), vector


def backward_of(grad_out: Tensor, statistics: Tensor, *arguments: Any) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    return _backward(grad_out, statistics, Arguments(*arguments))


_attention_backward = torch.library.custom_op(
    "fairseq_mega::attention_backward",
    backward_of,
    mutates_args=(),
    schema=f"(Tensor grad_out, Tensor statistics, {SCHEMA}) -> (Tensor, Tensor, Tensor, Tensor)",
)


@_attention_backward.register_fake
def _(grad_out: Tensor, statistics: Tensor, *arguments: Any) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    a = Arguments(*arguments)
    q, k, v = (torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in a[:3])
    return q, k, v, q.new_empty(0) if a.bias is None else torch.empty_like(a.bias)


def _save(ctx: Any, inputs: Tuple[Any, ...], output: Tuple[Tensor, Tensor]) -> None:
    ctx.options = inputs[6:]
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(output[1], *inputs[:6])


def gradients_by(backward: Callable[..., Tuple[Tensor, ...]]) -> Callable[..., Tuple[Optional[Tensor], ...]]:
    """Return the gradients of autograd by a function of what was saved, the operator's tensors last."""

    def gradients(ctx: Any, grad_out: Optional[Tensor], _: Any) -> Tuple[Optional[Tensor], ...]:
        if grad_out is None:
            return (None,) * len(ctx.needs_input_grad)
        saved = ctx.saved_tensors
        found = backward(grad_out, *saved, *ctx.options)
        given = saved[-len(found) - 2 : -2]  # all but padding and seed
        return *(None if tensor is None else grad for tensor, grad in zip(given, found)), *(None,) * 7

    return gradients


native.register_gradients(
    f"{native.NAMESPACE}::attention",
    gradients_by(_attention_backward),
    _save,
    in_python=(forward_of, gradients_by(backward_of)),
)


_operators = native.Operators(native.NAMESPACE)


def _register(namespace: str) -> None:
    for name in ("attention_weights_", "attention_weights_backward_"):
        torch.library.register_fake(f"{namespace}::{name}", lambda *args, **kwargs: None)


native.register(_register)
count(
    attention=lambda *shapes: forward_operations(shapes, Arguments(*shapes).causal),
    attention_backward=lambda grad_out, statistics, *shapes: backward_operations(shapes, Arguments(*shapes).causal),
)


def native_attention(a: Arguments) -> Tensor:
    """Attention (G, n, v) by the compiled kernels.

    Memory grows with n + m, in training too. Dropped weights depend on torch's seed, but differ from the torch paths'.
    """
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0:
        return _attention(*a)[0]  # as one operator, which a mode may count
    if not torch.is_grad_enabled():
        return _forward(a)[0]  # decoding makes many small calls: the dispatcher costs as much as they do
    return _operators.attention(*a)[0]
