"""Shapes and gradients of the compiled operators of gate.py, as torch.library takes them.

What an operator keeps for its backward pass is gate.py's to say (``keep``): it is part of the forward pass.
"""

from typing import Any, Callable, List, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from . import native

Keep = Callable[[Any, Tuple[Any, ...], Any], None]  # context, inputs, output


def inputs_of(node: Any) -> Tuple[Any, ...]:
    """The inputs a node has kept; torch's recomputation of layers gives them once only, so that they are noted.

    Raises RuntimeError where one has been written to since, as PyTorch does for what it keeps itself.
    """
    if node.inputs is None:
        node.inputs = (*node.saved_tensors, *node.options)
        node.versions = _versions(node.inputs)
    elif node.versions != _versions(node.inputs):
        raise RuntimeError("a tensor needed for the gradients has been modified by an inplace operation")
    return node.inputs


def _versions(inputs: Tuple[Any, ...]) -> List[int]:
    return [value._version for value in inputs if isinstance(value, Tensor)]


def register_gated_residual(namespace: str, keep: Keep) -> None:
    """Register the update gate's."""
    operators = getattr(torch.ops, namespace)

    def fake(x: Tensor, *rest: Any) -> Tensor:
        return x.new_empty(x.shape)

    def fake_backward(grad: Tensor, x: Tensor, *rest: Any) -> Tuple[Tensor, Tensor, Tensor]:
        return x.new_empty(x.shape), rest[0].new_empty(x.shape), rest[1].new_empty(x.shape)

    def backward(ctx: Any, grad: Tensor) -> Tuple[Optional[Tensor], ...]:
        x, update, candidate, addend, seed = ctx.saved_tensors
        found = operators.gated_residual_backward(grad, x, update, candidate, addend, seed, ctx.p)
        return (*found, None if addend is None else found[2], None, None)

    torch.library.register_fake(f"{namespace}::gated_residual")(fake)
    torch.library.register_fake(f"{namespace}::gated_residual_backward")(fake_backward)
    native.register_gradients(f"{namespace}::gated_residual", backward, keep)


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
        native.register_gradients(f"{namespace}::{name}", backward, keep(getattr(operators, name)))


def register_dropout(namespace: str, keep: Keep) -> None:
    """Register that of dropout, whose gradient drops the same elements."""
    operators = getattr(torch.ops, namespace)

    def fake(x: Tensor, seed: Tensor, p: float) -> Tensor:
        return x.new_empty(x.shape)

    def backward(ctx: Any, grad: Tensor) -> Tuple[Optional[Tensor], ...]:
        ctx.inputs = None
        return operators.dropout(grad, *ctx.options), None, None

    torch.library.register_fake(f"{namespace}::dropout")(fake)
    native.register_gradients(f"{namespace}::dropout", backward, keep, twice=True)


def _gradients_of_a_map(
    x: Tensor, weight: Tensor, need_x: bool, need_weight: bool, need_bias: bool
) -> Tuple[Tensor, Tensor, Tensor]:
    """New tensors for the gradients of x, weight and bias, empty where they are not needed."""
    outputs = weight.size(0)
    return (
        x.new_empty(x.size(0) if need_x else 0, x.size(1)),
        weight.new_empty(outputs if need_weight or need_bias else 0, x.size(1)),
        x.new_empty(outputs if need_bias else 0, dtype=torch.float32),
    )


def register_linear(namespace: str, keep: Keep) -> None:
    """Register those of linear maps."""
    operators = getattr(torch.ops, namespace)

    def fake(x: Tensor, weight: Tensor, bias: Optional[Tensor]) -> Tensor:
        return x.new_empty(x.size(0), weight.size(0))

    def fake_parts(x: Tensor, weight: Tensor, bias: Optional[Tensor], *widths: int) -> Tuple[Tensor, ...]:
        return tuple(x.new_empty(x.size(0), width) for width in (weight.size(0) - sum(widths), *widths))

    def fake_backward(grad: Tensor, *rest: Any) -> Tuple[Tensor, Tensor, Tensor]:
        return _gradients_of_a_map(*rest)

    def fake_parts_backward(
        first: Tensor, second: Tensor, third: Tensor, fourth: Tensor, *rest: Any
    ) -> Tuple[Tensor, Tensor, Tensor]:
        return _gradients_of_a_map(*rest)

    def backward_by(operator: Any) -> Callable[..., Tuple[Optional[Tensor], ...]]:
        def backward(ctx: Any, *grads: Tensor) -> Tuple[Optional[Tensor], ...]:
            (x, weight), needed = ctx.saved_tensors, ctx.needs_input_grad[:3]
            widths = (None,) * (len(grads) - 1)
            if torch.is_grad_enabled():  # gradients of gradients: products that PyTorch can differentiate
                grad = torch.cat(grads, dim=1)
                grad_x = grad @ weight.to(grad.dtype) if needed[0] else None
                grad_weight = (grad.t() @ x).to(weight.dtype) if needed[1] else None
                return grad_x, grad_weight, grad.sum(0).to(ctx.bias_type) if needed[2] else None, *widths
            found = operator(*grads, x, weight, *needed)
            grad_x, grad_weight, grad_bias = (t if n else None for t, n in zip(found, needed))
            return grad_x, grad_weight, None if grad_bias is None else grad_bias.to(ctx.bias_type), *widths

        return backward

    fakes = {"linear": (fake, fake_backward), "linear_parts": (fake_parts, fake_parts_backward)}
    for name, (of_forward, of_backward) in fakes.items():
        torch.library.register_fake(f"{namespace}::{name}")(of_forward)
        torch.library.register_fake(f"{namespace}::{name}_backward")(of_backward)
        backward = backward_by(getattr(operators, f"{name}_backward"))
        native.register_gradients(f"{namespace}::{name}", backward, keep, twice=True)
    _register_silu_linear(namespace, keep)


def _register_silu_linear(namespace: str, keep: Keep) -> None:
    """Register that of linear maps whose input goes through a SiLU."""
    operators = getattr(torch.ops, namespace)

    def fake(x: Tensor, factor: Optional[Tensor], weight: Tensor, bias: Optional[Tensor]) -> Tensor:
        return x.new_empty(x.size(0), weight.size(0))

    def fake_backward(
        grad: Tensor, x: Tensor, factor: Optional[Tensor], weight: Tensor, *needed: bool
    ) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
        of_x, of_weight, of_bias = _gradients_of_a_map(x, weight, *needed)
        return of_x, x.new_empty(of_x.size(0) if factor is not None else 0, x.size(1)), of_weight, of_bias

    def backward(ctx: Any, grad: Tensor) -> Tuple[Optional[Tensor], ...]:
        x, factor, weight = ctx.saved_tensors
        need_x, need_factor, need_weight, need_bias = ctx.needs_input_grad
        if torch.is_grad_enabled():  # gradients of gradients: functions that PyTorch can differentiate
            made = F.silu(x) if factor is None else factor * F.silu(x)
            inputs = [t for t, needed in zip((x, factor, weight), ctx.needs_input_grad) if needed]
            y = F.linear(made, weight.to(made.dtype))
            by_torch = iter(torch.autograd.grad(y, inputs, grad, create_graph=True) if inputs else ())
            found = (*(next(by_torch) if needed else None for needed in ctx.needs_input_grad[:3]), grad.sum(0))
        else:
            needed = need_x or need_factor, need_weight, need_bias
            found = operators.silu_linear_backward(grad, x, factor, weight, *needed)
        of_x, of_factor, of_weight, of_bias = (t if n else None for t, n in zip(found, ctx.needs_input_grad))
        return of_x, of_factor, of_weight, None if of_bias is None else of_bias.to(ctx.bias_type)

    torch.library.register_fake(f"{namespace}::silu_linear")(fake)
    torch.library.register_fake(f"{namespace}::silu_linear_backward")(fake_backward)
    native.register_gradients(f"{namespace}::silu_linear", backward, keep, twice=True)
