"""Gradients of the compiled attention: the weights are computed again, block by block, from two numbers per query."""

from typing import Any, Callable, Optional, Tuple

import torch
from torch import Tensor

from fairseq_mega.ops.common import native
from fairseq_mega.ops.common.operations import count

from .native import SCHEMA, Call, forward_of, multiply, view
from .native_blocks import Arguments, backward_operations


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


def _gradients_by(backward: Callable[..., Tuple[Tensor, ...]]) -> Callable[..., Tuple[Optional[Tensor], ...]]:
    def gradients(ctx: Any, grad_out: Optional[Tensor], _: Any) -> Tuple[Optional[Tensor], ...]:
        if grad_out is None:
            return (None,) * len(Arguments._fields)
        saved = ctx.saved_tensors
        *found, grad_bias = backward(grad_out, *saved, *ctx.options)
        return *found, None if saved[4] is None else grad_bias, *(None,) * 7

    return gradients


native.register_gradients(
    f"{native.NAMESPACE}::attention",
    _gradients_by(_attention_backward),
    _save,
    in_python=(forward_of, _gradients_by(backward_of)),
)


def _register(namespace: str) -> None:
    torch.library.register_fake(f"{namespace}::attention_weights_backward_", lambda *args, **kwargs: None)


native.register(_register)
count(attention_backward=lambda grad_out, statistics, *shapes: backward_operations(shapes, Arguments(*shapes).causal))
