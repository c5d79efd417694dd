"""Shapes and gradients of the compiled operators of gate.py, as torch.library takes them.

What an operator keeps for its backward pass is gate.py's to say (``keep``): it is part of the forward pass.
"""

from typing import Any, Callable, Optional, Tuple

import torch
from torch import Tensor

Keep = Callable[[Any, Tuple[Any, ...], Any], None]  # context, inputs, output


def inputs_of(node: Any) -> Tuple[Any, ...]:
    """The inputs a node has kept; torch's recomputation of layers gives them once only, so that they are noted."""
    if node.inputs is None:
        node.inputs = (*node.saved_tensors, *node.options)
    return node.inputs


def register_gated_residual(namespace: str, keep: Keep) -> None:
    """Register the update gate's."""
    operators = getattr(torch.ops, namespace)

    def fake(x: Tensor, *rest: Any) -> Tensor:
        return x.new_empty(x.shape)

    def fake_backward(grad: Tensor, x: Tensor, *rest: Any) -> Tuple[Tensor, Tensor, Tensor]:
        return x.new_empty(x.shape), rest[0].new_empty(x.shape), rest[1].new_empty(x.shape)

    def backward(ctx: Any, grad: Tensor) -> Tuple[Optional[Tensor], ...]:
        x, update, candidate, addend = ctx.saved_tensors
        found = operators.gated_residual_backward(grad, x, update, candidate, addend)
        return (*found, None if addend is None else found[2])

    torch.library.register_fake(f"{namespace}::gated_residual")(fake)
    torch.library.register_fake(f"{namespace}::gated_residual_backward")(fake_backward)
    torch.library.register_autograd(f"{namespace}::gated_residual", backward, setup_context=keep)


def register_recomputed(namespace: str, keep: Callable[[Any], Keep]) -> None:
    """Register those of silu, query_key and row_norm, whose results may be computed again."""
    operators = getattr(torch.ops, namespace)

    def fake_silu(x: Tensor, *rest: Any) -> Tensor:
        return x.new_empty(x.shape)

    def fake_silu_backward(grad: Tensor, x: Tensor, factor: Any, skip: Any, omega: Any) -> Tuple[Tensor, ...]:
        def like(other: Any) -> Tensor:
            return x.new_empty(0 if other is None else x.shape)

        columns = 0 if skip is None else x.size(-1)
        return x.new_empty(x.shape), like(factor), like(skip), x.new_empty(columns, dtype=torch.float32)

    def silu_backward(ctx: Any, grad: Tensor) -> Tuple[Optional[Tensor], ...]:
        x, factor, skip, omega = inputs_of(ctx)
        ctx.inputs = None
        grad_x, grad_factor, grad_skip, grad_omega = operators.silu_backward(grad, x, factor, skip, omega)
        present = (factor is not None, skip is not None, skip is not None)
        return (grad_x, *(g if p else None for g, p in zip((grad_factor, grad_skip, grad_omega), present)))

    def fake_query_key(x: Tensor, *rest: Any) -> Tuple[Tensor, Tensor]:
        return x.new_empty(x.shape), x.new_empty(x.shape)

    def fake_query_key_backward(grad: Tensor, other: Tensor, x: Tensor, kappa: Tensor) -> Tuple[Tensor, Tensor]:
        return x.new_empty(x.shape), kappa.new_empty(2, 2, x.size(-1))

    def query_key_backward(ctx: Any, grad_query: Tensor, grad_key: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
        x, kappa, _ = inputs_of(ctx)
        ctx.inputs = None
        grad_x, sums = operators.query_key_backward(grad_query, grad_key, x, kappa)
        return grad_x, sums[0], sums[1]

    def fake_norm(x: Tensor, weight: Any, bias: Any, centred: bool, eps: float, narrow: bool) -> Tensor:
        return x.new_empty(x.shape, dtype=torch.bfloat16 if narrow else x.dtype)

    def fake_norm_backward(grad: Tensor, x: Tensor, *rest: Any) -> Tuple[Tensor, Tensor]:
        parts = -(-x.numel() // max(x.size(-1), 1) // 256)
        return x.new_empty(x.shape), x.new_empty(parts, 2, x.size(-1), dtype=torch.float32)

    def norm_backward(ctx: Any, grad: Tensor) -> Tuple[Optional[Tensor], ...]:
        x, weight, bias, *options = inputs_of(ctx)
        ctx.inputs = None
        grad_x, parts = operators.row_norm_backward(grad, x, weight, *options)
        of_weight, of_bias = parts.sum(0)
        return grad_x, *(None if c is None else g for c, g in ((weight, of_weight), (bias, of_bias))), None, None, None

    torch.library.register_fake(f"{namespace}::silu")(fake_silu)
    torch.library.register_fake(f"{namespace}::silu_backward")(fake_silu_backward)
    torch.library.register_fake(f"{namespace}::query_key")(fake_query_key)
    torch.library.register_fake(f"{namespace}::query_key_backward")(fake_query_key_backward)
    torch.library.register_fake(f"{namespace}::row_norm")(fake_norm)
    torch.library.register_fake(f"{namespace}::row_norm_backward")(fake_norm_backward)
    for name, backward in (("silu", silu_backward), ("query_key", query_key_backward), ("row_norm", norm_backward)):
        torch.library.register_autograd(f"{namespace}::{name}", backward, setup_context=keep(getattr(operators, name)))


def register_linear(namespace: str, keep: Keep) -> None:
    """Register those of linear maps."""
    operators = getattr(torch.ops, namespace)

    def shape(x: Tensor, weight: Tensor, bias: Optional[Tensor]) -> Tensor:
        return x.new_empty(x.size(0), weight.size(0))

    def shapes(
        grad: Tensor, x: Tensor, weight: Tensor, need_x: bool, need_weight: bool, need_bias: bool
    ) -> Tuple[Tensor, Tensor, Tensor]:
        outputs = weight.size(0)
        return (
            x.new_empty(x.size(0) if need_x else 0, x.size(1)),
            weight.new_empty(outputs if need_weight or need_bias else 0, x.size(1)),
            x.new_empty(outputs if need_bias else 0, dtype=torch.float32),
        )

    def backward(ctx: Any, grad: Tensor) -> Tuple[Optional[Tensor], ...]:
        (x, weight), needed = ctx.saved_tensors, ctx.needs_input_grad
        if torch.is_grad_enabled():  # gradients of gradients: products that PyTorch can differentiate
            grad_x = grad @ weight.to(grad.dtype) if needed[0] else None
            grad_weight = (grad.t() @ x).to(weight.dtype) if needed[1] else None
            return grad_x, grad_weight, grad.sum(0).to(ctx.bias_type) if needed[2] else None
        found = operators.linear_backward(grad, x, weight, *needed)
        grad_x, grad_weight, grad_bias = (t if n else None for t, n in zip(found, needed))
        return grad_x, grad_weight, None if grad_bias is None else grad_bias.to(ctx.bias_type)

    torch.library.register_fake(f"{namespace}::linear")(shape)
    torch.library.register_fake(f"{namespace}::linear_backward")(shapes)
    torch.library.register_autograd(f"{namespace}::linear", backward, setup_context=keep)
