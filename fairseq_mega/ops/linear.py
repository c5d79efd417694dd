"""The linear maps of layers: :func:`linear`, and operations joined with them.

Sub-layers call their maps by :func:`in_parts` and :func:`after_silu`, which join a map with the operations beside it.
"""

import functools
import math
import threading
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from fairseq_mega.ops import activation
from fairseq_mega.ops.activation import silu
from fairseq_mega.ops.common import native
from fairseq_mega.ops.common.bfloat16 import MULTIPLIES_BFLOAT16, rounds_rows
from fairseq_mega.ops.common.dispatch import Operator, Path, kernels_unavailable
from fairseq_mega.ops.common.operations import count, map_operations
from fairseq_mega.ops.common.recompute import recomputing
from fairseq_mega.ops.common.transforms import is_transformed

# With fewer rows, choosing a path takes longer than PyTorch's call; with less work, PyTorch is as fast. (Measured.)
FEWEST_ROWS = 48
LEAST_WORK = 1 << 20
# With AVX2 and AVX-512 the kernel is faster than PyTorch's product (measured); without an instruction for bfloat16 it
# multiplies in float32.
FAST_LINEAR = native.reaches("avx2")
FAST_HALF_LINEAR = native.reaches("avx512_bf16")
MOST_PARTS, PANEL = 4, 32  # of the kernel: tensors that share a result's columns, and columns that stay together
LINEAR_TYPES = (torch.float32, torch.bfloat16)  # of the kernel; PyTorch computes float16, which CPUs must widen


def _rows(x: Tensor) -> int:
    return math.prod(x.shape[:-1])


def _suits_linear(x: Tensor, weight: Tensor) -> bool:
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        return False
    if x.dtype == torch.bfloat16 and not MULTIPLIES_BFLOAT16:
        return True
    fast = FAST_LINEAR and x.dtype == torch.float32
    if FAST_HALF_LINEAR and x.dtype == torch.bfloat16:
        fast = weight.size(0) % 2 == 0 and weight.size(1) % 2 == 0  # numbers are multiplied in pairs
    return fast and _rows(x) * weight.numel() >= LEAST_WORK


PATHS = Operator("linear", Path("reference"), Path("native", kernels_unavailable, native.DTYPES, suits=_suits_linear))


def linear(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None, *, path: Optional[str] = None) -> Tensor:
    """``x W^T + bias``.

    Args:
        x: (..., inputs).
        weight: (outputs, inputs).
        bias: (outputs,).
        path: "reference" (PyTorch's product) or "native" (a CPU's kernel; PyTorch's product on other devices and for
            float16) to force a path, "auto" for native where it is faster, None for the environment's choice, and for
            PyTorch's product of few rows.

    Returns:
        (..., outputs), of the type that autocast multiplies in, else of the type of x.

    Raises:
        ValueError: for an unknown path.
        RuntimeError, TypeError: where "native" is forced and cannot run.
    """
    inputs = _kernel_inputs(x, weight, bias, path)
    if inputs is None:
        return F.linear(x, *_cast(weight, bias))
    return native.operators.linear(inputs, weight, bias).view(*x.shape[:-1], weight.size(0))


def linear_parts(
    x: Tensor, weight: Tensor, bias: Optional[Tensor], widths: Sequence[int], *, path: Optional[str] = None
) -> Tuple[Tensor, ...]:
    """``linear(x, weight, bias).split(widths, dim=-1)``, whose backward pass does not concatenate gradients.

    Args:
        x, weight, bias, path: as in :func:`linear`.
        widths: of the parts. The kernel accepts up to four; all but the last are multiples of 32.

    Returns:
        A tensor (..., width) for each width.
    """
    if 1 < len(widths) <= MOST_PARTS and _joins_gradients(x, path):
        copied, added = _cast(weight, bias)
        y = F.linear(x, copied, None if added is None else added.detach())
        return _Parts.apply(y, bias, list(widths))
    if len(widths) > MOST_PARTS or any(width % PANEL for width in widths[:-1]):
        return linear(x, weight, bias, path=path).split(list(widths), dim=-1)
    inputs = _kernel_inputs(x, weight, bias, path)
    if inputs is None:
        y = F.linear(x, *_cast(weight, bias))
        return y.split(list(widths), dim=-1) if len(widths) > 1 else (y,)
    parts = native.operators.linear_parts(inputs, weight, bias, *(*widths[1:], 0, 0, 0)[: MOST_PARTS - 1])
    return tuple(part.view(*x.shape[:-1], width) for part, width in zip(parts, widths))


def _joins_gradients(x: Tensor, path: Optional[str]) -> bool:
    """Return whether a GPU's kernel joins the gradients of parts; in a compiled graph the compiler does."""
    eager = torch.is_grad_enabled() and not torch.compiler.is_compiling()
    return eager and activation.adds_bias(x) and PATHS.forced(path) != "reference"


class _Parts(torch.autograd.Function):
    """The parts of a map's result, which has its bias; one kernel joins their gradients and adds up the bias's."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, bias: Optional[Tensor], widths: List[int]) -> Tuple[Tensor, ...]:
        ctx.shape, ctx.bias_type = y.shape, None if bias is None else bias.dtype
        return y.split(widths, dim=-1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tuple[Optional[Tensor], ...]:
        if torch.is_grad_enabled():  # gradients of gradients: functions that PyTorch can differentiate
            joined = torch.cat(grads, dim=-1)
            sums = joined.flatten(0, -2).sum(0)
        else:
            joined, sums = native.operators.join_parts(*grads, *(None,) * (MOST_PARTS - len(grads)))
        return joined.view(ctx.shape), sums.to(ctx.bias_type) if ctx.needs_input_grad[1] else None, None


def silu_linear(
    x: Tensor, factor: Optional[Tensor], weight: Tensor, bias: Optional[Tensor] = None, *, path: Optional[str] = None
) -> Tensor:
    """``linear(silu(x, factor), weight, bias)``, whose kernel keeps neither the product's input nor its gradient.

    Args:
        x: (..., inputs).
        factor: (..., inputs), or None for one.
        weight, bias, path: as in :func:`linear`; without its kernel, :func:`silu` chooses as it does by itself.

    Returns:
        (..., outputs).

    Source: MEGA, Eq. 12 and 14, the reset gate before the output projection.
    """
    inputs = None
    if (factor is None or factor.shape == x.shape) and activation.PATHS.choose(None, x, factor) == "native":
        inputs = _kernel_inputs(x, weight, bias, path)
    if inputs is None or inputs.dtype != x.dtype:
        return recomputing(lambda made: linear(made, weight, bias, path=path), silu(x, factor))
    by = None if factor is None else factor.reshape(inputs.shape)
    return native.operators.silu_linear(inputs, by, weight, bias).view(*x.shape[:-1], weight.size(0))


def linear_map(
    module: Any,
    input: Tensor,
    *,
    widths: Optional[Sequence[int]] = None,
    silu: bool = False,
    factor: Any = None,
    biased: bool = True,
) -> Any:
    """Compute a module with ``weight`` and ``bias``: :func:`linear` (if not biased, the product alone),
    :func:`linear_parts` (widths) or :func:`silu_linear` (silu).
    """
    if widths is not None:
        return linear_parts(input, module.weight, module.bias, widths)
    if silu:
        return silu_linear(input, factor, module.weight, module.bias)
    return linear(input, module.weight, module.bias if biased else None)


def _is_linear_map(module: Any) -> bool:
    forward = getattr(module, "forward", None)
    return getattr(forward, "__func__", None) is linear_map  # a ``forward`` set on the object may do more


class _Cast(threading.local):
    copies: Optional[Dict[Any, Any]] = None  # of parameters of maps, in autocast's type; layers that have theirs


_CAST = _Cast()


def _cast(*parameters: Any) -> Tuple[Any, ...]:
    """Return the copies that the present layer has of its parameters, and all others as they are."""
    copies = None if torch.compiler.is_compiling() else _CAST.copies
    return parameters if copies is None else tuple(copies.get(parameter, parameter) for parameter in parameters)


def casting_once(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a method of a layer, or of a trunk with ``layers``, whose first argument is a tensor.

    Where autocast would copy the parameters of linear maps one by one, one kernel copies those of all layers, and one
    for each layer the gradients. A layer that is sharded has its parameters only while it runs, and copies them then.
    """

    @functools.wraps(forward)
    def run(owner: Any, x: Tensor, *arguments: Any, **named: Any) -> Any:
        if torch.compiler.is_compiling() or not casts_at_once(x) or owner in (_CAST.copies or {}):
            return forward(owner, x, *arguments, **named)
        before = _CAST.copies
        eager = (layer for layer in getattr(owner, "layers", [owner]) if layer._compiled_call_impl is None)
        _CAST.copies = _copies(eager, torch.get_autocast_dtype(x.device.type), before or {})
        try:
            return forward(owner, x, *arguments, **named)
        finally:
            _CAST.copies = before

    return run


def casts_at_once(x: Tensor) -> bool:
    """Return whether copies for one call of a layer pay: in a training under autocast on a GPU.

    Without gradients, autocast's own copies serve all calls of an evaluation.
    """
    return x.is_cuda and torch.is_grad_enabled() and torch.is_autocast_enabled("cuda") and not is_transformed()


def _copies(layers: Iterable[Any], dtype: torch.dtype, present: Dict[Any, Any]) -> Dict[Any, Any]:
    """Return what is present, and copies of further parameters of layers."""
    found, own = dict(present), {}
    for layer in layers:
        own[layer] = [parameter for parameter in dict.fromkeys(_plain(layer)) if parameter not in found]
        found.update(dict.fromkeys(own[layer]))
    copies = iter(_cast_all([parameter for parameters in own.values() for parameter in parameters], dtype))
    for layer, parameters in own.items():
        if parameters:
            of_layer = _Copied.apply([next(copies) for _ in parameters], *parameters)
            found.update({layer: True, **dict(zip(parameters, of_layer))})
    return found


def _plain(layer: Any) -> Iterator[Tensor]:
    """Yield the float32 parameters of maps, but for those that a wrapper or a hook computes or exchanges."""
    maps = (module for module in layer.modules() if _is_linear_map(module) and not module._forward_pre_hooks)
    for parameter in (module._parameters.get(name) for module in maps for name in ("weight", "bias")):
        if parameter is not None and parameter.dtype == torch.float32 and not is_traceable_wrapper_subclass(parameter):
            yield parameter


class _Copied(torch.autograd.Function):
    """Copies of float32 tensors in another type, as results of the tensors; one kernel copies the gradients back."""

    @staticmethod
    def forward(ctx: Any, copies: List[Tensor], *tensors: Tensor) -> Tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*(c for c, needed in zip(copies, ctx.needs_input_grad[1:]) if not needed))
        return tuple(copies)

    @staticmethod
    def backward(ctx: Any, *grads: Optional[Tensor]) -> Tuple[Optional[Tensor], ...]:
        present = [grad for grad in grads if grad is not None]
        by_torch = torch.is_grad_enabled()  # gradients of gradients: copies that PyTorch can differentiate
        found = iter([g.float() for g in present] if by_torch else _cast_all(present, torch.float32))
        return None, *(None if grad is None else next(found) for grad in grads)


@torch.no_grad()
def _cast_all(tensors: List[Tensor], dtype: torch.dtype) -> List[Tensor]:
    copies = [torch.empty_like(tensor, dtype=dtype) for tensor in tensors]
    if copies:
        torch._foreach_copy_(copies, tensors)
    return copies


def bias_apart(module: Any, x: Tensor) -> Tuple[Callable[[Tensor], Tensor], Optional[Tensor]]:
    """Return a map and None or, on a GPU, a :func:`linear_map`'s product and its bias, for the kernel that follows.

    This kernel, :func:`silu` or :func:`.gate.gated_residual`, reads the gradient in any case and adds up its rows,
    which PyTorch would read once more for the gradient of the bias.
    """
    apart = _is_linear_map(module) and module.bias is not None and module.bias.dtype == torch.float32
    if apart and activation.adds_bias(x):
        return functools.partial(module, biased=False), module.bias
    return module, None


def before_silu(module: Any, x: Tensor) -> Tensor:
    """``silu(module(x))``."""
    product, bias = bias_apart(module, x)
    return silu(product(x), bias=bias)


def in_parts(module: Any, x: Tensor, widths: Sequence[int]) -> Tuple[Tensor, ...]:
    """``module(x).split(widths, dim=-1)``, for a :func:`linear_map` by :func:`linear_parts`."""
    return module(x, widths=widths) if _is_linear_map(module) else module(x).split(list(widths), dim=-1)


def after_silu(
    module: Any,
    x: Optional[Tensor],
    factor: Optional[Tensor] = None,
    dropout: Any = None,
    bias: Optional[Tensor] = None,
) -> Tensor:
    """``module(dropout(silu(x + bias, factor)))``; by :func:`silu_linear` for a :func:`linear_map` without bias and
    dropout. Without x, the factor has been multiplied before.
    """
    drops = dropout is not None and dropout.active
    if x is not None and bias is None and not drops and _is_linear_map(module):
        return module(x, silu=True, factor=factor)
    made = factor if x is None else silu(x, factor, bias=bias)
    return recomputing(module, dropout(made) if drops else made)


def _kernel_inputs(x: Tensor, weight: Tensor, bias: Optional[Tensor], path: Optional[str]) -> Optional[Tensor]:
    """Return the rows of x in the type of their product; None where PyTorch's product is chosen."""
    small = not torch.compiler.is_compiling() and _rows(x) < FEWEST_ROWS  # a compiled graph serves any number of rows
    if path is None and small and (MULTIPLIES_BFLOAT16 or not rounds_rows(x)):
        return None
    if x.size(-1) != weight.size(-1):
        return None  # PyTorch's product raises the error, in words that name both sizes
    inputs, kind = x, x.device.type
    if torch.is_autocast_enabled(kind) and x.dtype != torch.float64:
        inputs = x.to(torch.get_autocast_dtype(kind)) if kind == "cpu" else x  # only a CPU's kernel reads the copy
    elif x.dtype != weight.dtype:
        return None  # PyTorch's product raises the error
    if PATHS.choose(path, inputs, weight) == "reference" or kind != "cpu" or inputs.dtype not in LINEAR_TYPES:
        return None
    return inputs.reshape(_rows(x), x.size(-1))


def _keep_factors(ctx: Any, inputs: Tuple[Any, ...], output: Any) -> None:
    *factors, bias = (value for value in inputs if not isinstance(value, int))
    ctx.bias_type = None if bias is None else bias.dtype
    ctx.save_for_backward(*factors)


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


def _register(namespace: str) -> None:
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
        native.register_gradients(f"{namespace}::{name}", backward, _keep_factors, twice=True)
    _register_silu_linear(namespace)

    def fake_join(first: Tensor, *others: Optional[Tensor]) -> Tuple[Tensor, Tensor]:
        width = sum(part.size(-1) for part in (first, *others) if part is not None)
        return first.new_empty(_rows(first), width), first.new_empty(width, dtype=torch.float32)

    torch.library.register_fake(f"{namespace}::join_parts")(fake_join)


def _register_silu_linear(namespace: str) -> None:
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
    native.register_gradients(f"{namespace}::silu_linear", backward, _keep_factors, twice=True)


native.register(_register)


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
