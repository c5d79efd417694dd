"""Shapes and gradients of the compiled linear maps, for torch.library.

The forward pass decides which tensors a map keeps for its backward pass (``keep``).
"""

from typing import Any, Callable, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_mega.ops.common import native
from fairseq_mega.ops.common.operations import count, map_operations

Keep = Callable[[Any, Tuple[Any, ...], Any], None]  # context, inputs, output


def _gradients_of_a_map(
    x: Tensor, weight: Tensor, need_x: bool, need_weight: bool, need_bias: bool
) -> Tuple[Tensor, Tensor, Tensor]:
    """Return new tensors for the gradients of x, weight and bias, empty where they are not needed."""
    outputs = weight.size(0)
    return (
        x.new_empty(x.size(0) if need_x else 0, x.size(1)),
        weight.new_empty(outputs if need_weight or need_bias else 0, x.size(1)),
        x.new_empty(outputs if need_bias else 0, dtype=torch.float32),
    )


def register_linear(namespace: str, keep: Keep) -> None:
    """Register shapes and gradients of linear maps."""
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
    """Register shapes and gradients of linear maps whose input goes through a SiLU."""
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


def _backward_operations(x: Any, weight: Any, need_x: bool, need_weight: bool, *need_bias: bool) -> int:
    return (need_x + need_weight) * map_operations(x[0], weight)


count(
    linear=lambda x, weight, *rest: map_operations(x[0], weight),
    linear_parts=lambda x, weight, *rest: map_operations(x[0], weight),
    silu_linear=lambda x, factor, weight, *rest: map_operations(x[0], weight),
    linear_backward=lambda grad, *rest: _backward_operations(*rest),
    linear_parts_backward=lambda *arguments: _backward_operations(*arguments[4:]),
    silu_linear_backward=lambda grad, x, factor, *rest: _backward_operations(x, *rest),
)
