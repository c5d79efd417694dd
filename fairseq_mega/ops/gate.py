"""MEGA's linear maps, what its sub-layers do to single rows between them, and the Python half of the kernels.

:func:`gated_residual` is the update gate, :func:`silu` the activation with what stands beside it, :func:`row_norm`
layer or RMS norm, :func:`dropout` what it says. The last three are cheap: they need not be kept for a backward pass
(:func:`recomputing`); most often they go to :func:`linear`, whose products use all of a CPU's vectors. Sub-layers call
their maps by :func:`in_parts` and :func:`after_silu`, which join a map with what stands beside it.
"""

import math
from typing import Any, Callable, Optional, Sequence, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from . import gate_reference as reference
from . import native
from .bfloat16 import MULTIPLIES_BFLOAT16, rounds_rows
from .dispatch import Operator, Path, check_devices, kernels_obstacle
from .gate_backward import inputs_of, register_dropout, register_gated_residual, register_linear, register_recomputed

# With fewer rows PyTorch's call is over before a path is chosen; with less work it is as fast. (Measured.)
FEWEST_ROWS = 48
LEAST_WORK = 1 << 20
# Without vectors of sixteen numbers PyTorch's products are as fast (measured). Those of bfloat16 are left to PyTorch on
# processors with tiles (AMX); without an instruction for them the kernel multiplies in float32.
FAST_LINEAR = native.cpu_level() in ("avx512", "avx512_bf16")
FAST_HALF_LINEAR = native.cpu_level() == "avx512_bf16" and not getattr(torch.cpu, "_is_amx_tile_supported", bool)()
MOST_PARTS, PANEL = 4, 32  # of the kernel: tensors for the columns of a result, and columns that stay together
LINEAR_TYPES = (torch.float32, torch.bfloat16)  # of the kernel; float16, which CPUs have to widen, is left to PyTorch


def _takes_types(residual: Tensor, update: Tensor, candidate: Tensor, addend: Optional[Tensor]) -> bool:
    """Whether the kernels take the tensors as they are; the reference promotes their types."""
    one = update.dtype == candidate.dtype and (addend is None or addend.dtype == update.dtype)
    return one and update.dtype in native.DTYPES and residual.dtype in (update.dtype, torch.float32)


def _one_type(x: Tensor, *others: Optional[Tensor]) -> bool:
    return all(other is None or other.dtype == x.dtype for other in others)


def _takes_result(x: Tensor, dtype: Optional[torch.dtype]) -> bool:
    return dtype in (None, x.dtype) or (dtype == torch.bfloat16 and x.dtype == torch.float32)


PATHS = Operator("gate", Path("reference"), Path("native", kernels_obstacle, native.DTYPES, suits=_takes_types))
ACTIVATION_PATHS = Operator("gate", Path("reference"), Path("native", kernels_obstacle, native.DTYPES, suits=_one_type))
NORM_PATHS = Operator("gate", Path("reference"), Path("native", kernels_obstacle, native.DTYPES, suits=_takes_result))


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


NATIVE_LINEAR = Path("native", kernels_obstacle, native.DTYPES, suits=_suits_linear)
LINEAR_PATHS = Operator("linear", Path("reference"), NATIVE_LINEAR)


def gated_residual(
    residual: Tensor,
    update: Tensor,
    candidate: Tensor,
    addend: Optional[Tensor] = None,
    *,
    dropout: float = 0.0,
    path: Optional[str] = None,
) -> Tensor:
    """Mix the candidate into the residual: ``residual + sigmoid(update) (candidate - residual)``.

    Args:
        residual: (..., D); may be float32 beside others of half precision, as under autocast.
        update: (..., D), logits of the update gate.
        candidate: (..., D).
        addend: (..., D); where given, the candidate is ``SiLU(candidate + addend)``.
        dropout: probability of dropping an element of the candidate, see :func:`dropout`.
        path: "reference" or "native" (compiled kernels) to force a path, "auto" for native wherever its kernels can
            run, None for the environment's choice (see :mod:`fairseq_mega.ops.dispatch`).

    Returns:
        (..., D), of the type of the residual.

    Raises:
        ValueError: for an unknown path.
        RuntimeError, TypeError: where "native" is forced and cannot run (the message says how to build it), or for
            tensors on several devices.

    Source: MEGA (Ma et al., ICLR 2023), Eq. 13 to 15.
    """
    check_devices("gate", residual=residual, update=update, candidate=candidate, addend=addend)
    if PATHS.choose(path, residual, update, candidate, addend) == "native":
        seed = draw_seed(residual.device) if dropout != 0.0 else None
        return native.operators.gated_residual(residual, update, candidate, addend, seed, dropout)
    return reference.gated_residual(residual, update, candidate, addend, dropout)


def silu(
    x: Tensor,
    factor: Optional[Tensor] = None,
    *,
    skip: Optional[Tensor] = None,
    omega: Optional[Tensor] = None,
    path: Optional[str] = None,
) -> Tensor:
    """``factor SiLU(x + omega skip)``: the activation of values and FFN, the reset gate, or the output of the EMA.

    Args:
        x: (..., D).
        factor: (..., D), what a reset gate with the logits x lets through.
        skip: (..., D), what the EMA's output x is of.
        omega: (D,), the skip's weight.
        path: as in :func:`gated_residual`; the kernels are for CPUs, "native" means PyTorch's on other devices.

    Returns:
        (..., D).

    Source: MEGA, Eq. 7, 8 and 12; the skip is the published code's.
    """
    if factor is None and skip is None and path is None and not torch.is_grad_enabled():
        return F.silu(x)  # nothing is kept, and a single step is over sooner than a path is chosen
    check_devices("gate", x=x, factor=factor, skip=skip, omega=omega)
    if ACTIVATION_PATHS.choose(path, x, factor, skip) == "native" and x.device.type == "cpu":
        return native.operators.silu(x, factor, skip, None if omega is None else omega.to(torch.float32))
    return reference.silu(x, factor, skip, omega)


def row_norm(
    x: Tensor,
    weight: Optional[Tensor] = None,
    bias: Optional[Tensor] = None,
    *,
    centred: bool,
    eps: float,
    dtype: Optional[torch.dtype] = None,
    path: Optional[str] = None,
) -> Tensor:
    """Layer norm or RMS norm of every row, ``weight (x - m) / sqrt(mean((x - m)^2) + eps) + bias``.

    Args:
        x: (..., D); statistics in at least float32.
        weight, bias: (D,), of any floating type, or None for one and zero.
        centred: m is the mean of the row (layer norm); else zero (RMS norm).
        eps: added to the variance.
        dtype, path: of the result, None for that of x; as in :func:`silu`.

    Returns:
        (..., D).

    Source: Ba et al., 2016; Zhang and Sennrich, NeurIPS 2019.
    """
    if path is None and not torch.is_grad_enabled():
        return reference.row_norm(x, weight, bias, centred, eps, dtype)  # sooner over than a path is chosen
    check_devices("gate", x=x, weight=weight, bias=bias)
    if NORM_PATHS.choose(path, x, dtype) == "native" and x.device.type == "cpu":
        columns = (None if column is None else column.to(torch.float32) for column in (weight, bias))
        return native.operators.row_norm(x, *columns, centred, eps, dtype not in (None, x.dtype))
    return reference.row_norm(x, weight, bias, centred, eps, dtype)


def dropout(x: Tensor, p: float, *, path: Optional[str] = None) -> Tensor:
    """Zero in the place of each element with probability p, ``x / (1 - p)`` in that of the others.

    The kernel keeps one random number in place of a mask: it drops by a hash of that, the row and the column.

    Args:
        x: (..., D).
        p, path: in [0, 1]; as in :func:`silu`, where PyTorch's function draws the mask in one thread.

    Source: Srivastava et al., 2014.
    """
    compiled = ACTIVATION_PATHS.choose(path, x) == "native" and x.device.type == "cpu" and x.dim() > 0
    if torch.compiler.is_compiling() or not compiled:
        return F.dropout(x, p)
    return recomputing(native.operators.dropout, x, draw_seed(x.device), p)


def draw_seed(device: torch.device) -> Tensor:
    """Draw what one call drops by: () int64, below 2^62; another one in each process, which fairseq seeds alike."""
    seed = torch.randint(1 << 62, (), dtype=torch.int64, device=device)
    several = torch.distributed.is_available() and torch.distributed.is_initialized()
    return seed ^ (torch.distributed.get_rank() * 0x1E3779B97F4A7C15 & (1 << 62) - 1) if several else seed


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
        return F.linear(x, weight, bias)
    return native.operators.linear(inputs, weight, bias).view(*x.shape[:-1], weight.size(0))


def linear_parts(
    x: Tensor, weight: Tensor, bias: Optional[Tensor], widths: Sequence[int], *, path: Optional[str] = None
) -> Tuple[Tensor, ...]:
    """``linear(x, weight, bias).split(widths, dim=-1)``, where no gradients are copied together in the backward pass.

    Args:
        x, weight, bias, path: as in :func:`linear`.
        widths: of the parts. The kernel takes up to four, of which all but the last are multiples of 32.

    Returns:
        A tensor (..., width) for each width.
    """
    if len(widths) > MOST_PARTS or any(width % PANEL for width in widths[:-1]):
        return linear(x, weight, bias, path=path).split(list(widths), dim=-1)
    inputs = _kernel_inputs(x, weight, bias, path)
    if inputs is None:
        return F.linear(x, weight, bias).split(list(widths), dim=-1)
    parts = native.operators.linear_parts(inputs, weight, bias, *(*widths[1:], 0, 0, 0)[: MOST_PARTS - 1])
    return tuple(part.view(*x.shape[:-1], width) for part, width in zip(parts, widths))


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
    if (factor is None or factor.shape == x.shape) and ACTIVATION_PATHS.choose(None, x, factor) == "native":
        inputs = _kernel_inputs(x, weight, bias, path)
    if inputs is None or inputs.dtype != x.dtype:
        return recomputing(lambda made: linear(made, weight, bias, path=path), silu(x, factor))
    by = None if factor is None else factor.reshape(inputs.shape)
    return native.operators.silu_linear(inputs, by, weight, bias).view(*x.shape[:-1], weight.size(0))


def linear_map(
    module: Any, input: Tensor, *, widths: Optional[Sequence[int]] = None, silu: bool = False, factor: Any = None
) -> Any:
    """The ``forward`` of a module with ``weight`` and ``bias``: :func:`linear`; with widths :func:`linear_parts`, with
    silu :func:`silu_linear`."""
    if widths is not None:
        return linear_parts(input, module.weight, module.bias, widths)
    if silu:
        return silu_linear(input, factor, module.weight, module.bias)
    return linear(input, module.weight, module.bias)


def _is_linear_map(module: Any) -> bool:
    return getattr(module.forward, "__func__", None) is linear_map  # a forward of the object's own may do more


def in_parts(module: Any, x: Tensor, widths: Sequence[int]) -> Tuple[Tensor, ...]:
    """``module(x).split(widths, dim=-1)``, for a :func:`linear_map` by :func:`linear_parts`."""
    return module(x, widths=widths) if _is_linear_map(module) else module(x).split(list(widths), dim=-1)


def after_silu(module: Any, x: Tensor, factor: Optional[Tensor] = None, dropout: Any = None) -> Tensor:
    """``module(dropout(silu(x, factor)))``, for a :func:`linear_map` by :func:`silu_linear` if nothing is dropped."""
    if dropout is not None and dropout.active:
        return recomputing(module, dropout(silu(x, factor)))
    return module(x, silu=True, factor=factor) if _is_linear_map(module) else recomputing(module, silu(x, factor))


def _kernel_inputs(x: Tensor, weight: Tensor, bias: Optional[Tensor], path: Optional[str]) -> Optional[Tensor]:
    """The rows of x in the type they are multiplied in, or None where PyTorch's product is to be taken."""
    if path is None and _rows(x) < FEWEST_ROWS and (MULTIPLIES_BFLOAT16 or not rounds_rows(x)):
        return None
    check_devices("linear", x=x, weight=weight, bias=bias)
    inputs, kind = x, x.device.type
    if torch.is_autocast_enabled(kind) and x.dtype != torch.float64:
        inputs = x.to(torch.get_autocast_dtype(kind))
    elif x.dtype != weight.dtype:
        return None  # PyTorch's product says what is wrong
    if LINEAR_PATHS.choose(path, inputs, weight) == "reference" or kind != "cpu" or inputs.dtype not in LINEAR_TYPES:
        return None
    return inputs.reshape(_rows(x), x.size(-1))


class _Again:
    """One output of an operator, by the node that knows its inputs."""

    def __init__(self, output: Tensor) -> None:
        self.node: Any = output.grad_fn
        self.index, self.size, self.stride = output.output_nr, output.size(), output.stride()

    def view(self, size: Any, stride: Any) -> "_Again":
        self.size, self.stride = size, stride
        return self

    def compute(self) -> Tensor:
        with torch.no_grad():
            outputs = self.node.operator(*inputs_of(self.node))
        return (outputs if isinstance(outputs, Tensor) else outputs[self.index]).as_strided(self.size, self.stride)


def _hooks() -> Optional[Tuple[Callable[[Tensor], Any], Callable[[Any], Tensor]]]:
    """What packs and unpacks the tensors that are kept now: the innermost hooks alone are called by PyTorch.

    None where there are none, or PyTorch is too old to tell. A result must not be kept as it is: its node would keep
    the result, which keeps the node, and a graph that is never run backward would never be freed.
    """
    top = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
    return None if top is None else top(True)


def recomputing(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function; what it keeps of its arguments is, where an operator made them that is cheap, how.

    The backward pass of the function then computes them again, from what their own backward pass needs in any case.
    Whatever else it keeps goes through the hooks around the call, such as those of activation checkpointing.

    Args:
        function: whose backward pass needs some of the arguments.
        arguments: of any kind; results of such operators have to be contiguous, as they are.
    """
    if not torch.is_grad_enabled() or torch.compiler.is_compiling():
        return function(*arguments)
    made = [a for a in arguments if isinstance(a, Tensor) and hasattr(a.grad_fn, "operator") and a.numel() > 0]
    made = [a for a in made if a._version == 0]  # else somebody has written to it
    if not made:
        return function(*arguments)
    outer_pack, outer_unpack = _hooks() or (torch.Tensor.detach, lambda kept: kept)

    def pack(kept: Tensor) -> Any:
        for output in made:
            if kept.data_ptr() == output.data_ptr() and kept.numel() == output.numel() and kept.dtype == output.dtype:
                return _Again(output).view(kept.size(), kept.stride())
        return outer_pack(kept)

    def unpack(kept: Any) -> Tensor:
        return kept.compute() if isinstance(kept, _Again) else outer_unpack(kept)

    try:
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            return function(*arguments)
    finally:
        made.clear()  # the graph keeps the hooks, and with them what they refer to


def keep_operator(operator: Any) -> Callable[[Any, Tuple[Any, ...], Any], None]:
    """What keeps an operator and its inputs, so that :func:`recomputing` can call it again."""

    def keep(ctx: Any, inputs: Tuple[Any, ...], output: Any) -> None:
        ctx.operator, ctx.inputs = operator, None
        ctx.options = tuple(value for value in inputs if isinstance(value, (int, float)))  # they come last
        ctx.save_for_backward(*inputs[: len(inputs) - len(ctx.options)])

    return keep


def _keep_inputs(ctx: Any, inputs: Tuple[Any, ...], output: Any) -> None:
    *tensors, ctx.p = inputs
    ctx.save_for_backward(*tensors)


def _keep_seed(ctx: Any, inputs: Tuple[Any, ...], output: Any) -> None:
    x, *ctx.options = inputs
    if hasattr(x.grad_fn, "operator"):  # else whoever needs the result keeps it, and nobody x
        ctx.operator, ctx.inputs = native.operators.dropout, None
        ctx.save_for_backward(x)


def _keep_factors(ctx: Any, inputs: Tuple[Any, ...], output: Any) -> None:
    *factors, bias = (value for value in inputs if not isinstance(value, int))
    ctx.bias_type = None if bias is None else bias.dtype
    ctx.save_for_backward(*factors)


native.register(lambda namespace: register_gated_residual(namespace, _keep_inputs))
native.register(lambda namespace: register_recomputed(namespace, keep_operator))
native.register(lambda namespace: register_dropout(namespace, _keep_seed))
native.register(lambda namespace: register_linear(namespace, _keep_factors))
