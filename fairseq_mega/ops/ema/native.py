"""The damped EMA as a scan over time by the compiled kernels: the Python half of the operators.

The kernels work on real tensors; complex numbers are a last axis of two. The kernels for CPUs return the gradient as a
few sums over time ("moments", see csrc/ema/ema_scan.h), from which :func:`_coefficient_gradients` computes the
coefficients'; a kernel for GPUs does so by itself.
"""

from typing import Any, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from fairseq_mega.ops.common import native
from fairseq_mega.ops.common.operations import average_operations, count
from fairseq_mega.ops.dropout import draw_seed

from .coefficients import EMACoefficients


class Gate(NamedTuple):
    """``dropout(SiLU(y + omega x))`` of the EMA's output y, or without a SiLU ``y + omega x``."""

    omega: Tensor  # (D,)
    activated: bool
    dropout: float


def has_gate(x: Tensor) -> bool:
    """Return whether the kernel of the EMA computes a :class:`Gate`: that for GPUs."""
    return native.has_kernel("ema_scan_gradients", x.device)


def ema_native(
    x: Tensor,
    coefficients: EMACoefficients,
    *,
    padding_mask: Optional[Tensor] = None,
    reset_mask: Optional[Tensor] = None,
    bidirectional: bool = False,
    shift: bool = False,
    truncation: Optional[int] = None,
    state: Optional[Tensor] = None,
    gate: Optional[Gate] = None,
) -> Tuple[Tensor, Optional[Tensor]]:
    """The EMA by the compiled kernels; arguments and result as :func:`fairseq_mega.ops.ema.damped_ema`.

    x may be float32, bfloat16 or float16; coefficients and state are float32 or complex64. Only kernels of
    :func:`has_gate` accept a gate; with padding, they return no state that a gradient may be for.
    """
    log_decay, expansion, projection = _as_real(coefficients)
    if state is not None:
        state = torch.view_as_real(state) if state.is_complex() else state
    follows: Tuple[Any, ...] = (None, None, 0.0, False, False)
    if gate is not None:
        omega, seed = gate.omega.to(torch.float32), draw_seed(x.device) if gate.dropout != 0.0 else None
        inputs = (x, log_decay, expansion, projection, omega, state)
        learns = torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in inputs)
        follows = (omega, seed, gate.dropout, gate.activated, learns)
    y, final_state, _ = native.operators.ema_scan(
        x,
        log_decay,
        expansion,
        projection,
        state,
        padding_mask,
        reset_mask,
        *follows,
        bidirectional,
        shift,
        truncation or 0,
    )
    if bidirectional:
        return y, None
    return y, torch.view_as_complex(final_state) if log_decay.dim() == 3 else final_state


def ema_native_step(
    x: Tensor,
    coefficients: EMACoefficients,
    state: Optional[Tensor],
    omega: Optional[Tensor] = None,
    *,
    activated: bool,
) -> Tuple[Tensor, Tensor]:
    """One step without gradients, ``EMA(x) + omega x``, and the SiLU of it where ``activated``.

    Args:
        x: (B, D), float32, bfloat16 or float16.
        coefficients: each (D, N).
        state: (B, D, N), or None for zeros.
        omega: (D,) in float32, or None for no skip.
        activated: whether there is a SiLU.

    Returns:
        (B, D), and the new state (B, D, N).
    """
    log_decay, expansion, projection = _as_real(coefficients)
    if state is not None and state.is_complex():
        state = torch.view_as_real(state)
    y, new_state = native.operators.ema_step(x, log_decay, expansion, projection, omega, state, activated)
    return y, torch.view_as_complex(new_state) if log_decay.dim() == 3 else new_state


def _as_real(coefficients: EMACoefficients) -> Tuple[Tensor, Tensor, Tensor]:
    """Return decay, expansion and projection in the form of the kernels; one complex factor makes both complex."""
    log_decay, expansion, projection = coefficients
    if log_decay.is_complex() or projection.is_complex():
        log_decay, projection = (
            torch.view_as_real(tensor if tensor.is_complex() else tensor.to(torch.complex64))
            for tensor in (log_decay, projection)
        )
    return log_decay, expansion, projection


def _coefficient_gradients(
    moments: Tensor,
    state_moments: Optional[Tensor],
    log_decay: Tensor,
    expansion: Tensor,
    projection: Tensor,
    state: Optional[Tensor],
) -> Tuple[Tensor, Tensor, Tensor, Optional[Tensor]]:
    """Gradients of log_decay, expansion, projection and state from the kernels' sums over time.

    With M = sum_t x_t v_t and Z = sum_t x_t dv_t/dq of the outputs' adjoint, and v_0 its value at the first step: the
    gradient of p g is M, and the gradient of g has the further term state q v_0; the gradient of q is p g Z + g state
    (v_0 + q z_0). A gradient of the final state adds terms of the same form with p in place of p g. All sums but the
    batch's are in float64.
    """
    is_complex = log_decay.dim() == 3

    def exact(tensor: Tensor) -> Tensor:
        tensor = tensor.double()
        return torch.view_as_complex(tensor) if is_complex else tensor

    q, p, g = torch.exp(exact(log_decay)), expansion.double(), exact(projection)
    total_v, total_z = exact(moments[:2].sum(1))
    grad_p, grad_g, grad_q = g * total_v, p * total_v, p * g * total_z
    grad_state = None
    if state is not None:
        h, (first, slope) = exact(state), exact(moments[2:])  # each (B, K, N)
        grad_g = grad_g + (h * q * first).sum(0)
        grad_q = grad_q + (g * h * (first + q * slope)).sum(0)
        grad_state = g * q * first
    if state_moments is not None:
        total_v, total_z = exact(state_moments[:2].sum(1))
        grad_p = grad_p + total_v
        grad_q = grad_q + p * total_z
        if state is not None and grad_state is not None:
            first, slope = exact(state_moments[2:])
            grad_q = grad_q + (exact(state) * (first + q * slope)).sum(0)
            grad_state = grad_state + q * first

    def back(gradient: Tensor, like: Tensor) -> Tensor:  # torch's convention: the conjugate of the derivative
        if is_complex:
            gradient = torch.view_as_real(gradient.conj().resolve_conj())
        return gradient.to(like.dtype)

    grad_expansion = (grad_p.real if is_complex else grad_p).to(expansion.dtype)
    return (
        back(grad_q * q, log_decay),
        grad_expansion,
        back(grad_g, projection),
        None if grad_state is None or state is None else back(grad_state, state),
    )


def _setup_context(ctx: Any, inputs: Tuple[Any, ...], output: Any) -> None:
    *tensors, _, _, _, _, _, _ = inputs
    ctx.options = inputs[len(tensors) :]
    ctx.save_for_backward(output[2], *tensors)
    ctx.set_materialize_grads(False)  # an unused final state costs nothing in the backward pass


def _register(namespace: str) -> None:
    operators = getattr(torch.ops, namespace)

    def fake_scan(x: Tensor, log_decay: Tensor, expansion: Tensor, projection: Tensor, *rest: Any) -> Any:
        activated, keeps, bidirectional = rest[6:9]
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        kept = torch.empty_like(y) if activated and keeps else x.new_empty(0)
        return y, _states(x, log_decay, expansion, bidirectional), kept

    def fake_backward(grad_y: Tensor, grad_state: Optional[Tensor], x: Tensor, log_decay: Tensor, *rest: Any) -> Any:
        size = (4, x.size(0), *log_decay.shape)
        moments = log_decay.new_empty(size)
        return (
            torch.empty_like(x, memory_format=torch.contiguous_format),
            moments,
            log_decay.new_empty(0 if grad_state is None else size),
        )

    def fake_step(x: Tensor, log_decay: Tensor, expansion: Tensor, *rest: Any) -> Any:
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        return y, _states(x.unsqueeze(1), log_decay, expansion, False)

    def fake_gradients(grad_y: Tensor, grad_state: Any, kept: Tensor, *inputs: Any) -> Any:
        of = (*inputs[:5], inputs[7])
        return tuple(grad_y.new_empty(0) if tensor is None else tensor.new_empty(tensor.shape) for tensor in of)

    def backward(ctx: Any, grad_y: Optional[Tensor], grad_final_state: Optional[Tensor], _: None) -> Any:
        kept, *saved = ctx.saved_tensors
        x, log_decay, expansion, projection, state, _, _, omega, _ = saved
        if grad_y is None:
            grad_y = torch.zeros_like(x)
        directions = ctx.options[3:]
        if directions[0]:  # bidirectional: the final state is an empty tensor
            grad_final_state = None
        grad_omega = None
        if has_gate(x):
            given = (grad_y, grad_final_state, kept, *saved, *ctx.options)
            grad_x, *coefficients, grad_state, grad_omega = operators.ema_scan_gradients(*given)
        else:
            given = (grad_y, grad_final_state, *saved[:7], *directions)
            grad_x, moments, of_state = operators.ema_scan_backward(*given)
            sums = (moments, None if grad_final_state is None else of_state)
            *coefficients, grad_state = _coefficient_gradients(*sums, log_decay, expansion, projection, state)
        of = (None if tensor is None else g for tensor, g in ((state, grad_state), (omega, grad_omega)))
        grad_state, grad_omega = of
        return grad_x, *coefficients, grad_state, None, None, grad_omega, *[None] * 7

    torch.library.register_fake(f"{namespace}::ema_scan")(fake_scan)
    torch.library.register_fake(f"{namespace}::ema_scan_backward")(fake_backward)
    torch.library.register_fake(f"{namespace}::ema_step")(fake_step)
    torch.library.register_fake(f"{namespace}::ema_scan_gradients")(fake_gradients)
    native.register_gradients(f"{namespace}::ema_scan", backward, _setup_context)


def _states(x: Tensor, log_decay: Tensor, expansion: Tensor, bidirectional: bool) -> Tensor:
    size = (0,) if bidirectional else (x.size(0), x.size(2), *log_decay.shape[1:])
    return expansion.new_empty(size)


native.register(_register)
count(
    ema_scan=lambda x, *rest: x[0] * average_operations(x[2], x[1]),
    ema_scan_backward=lambda grad_y, grad_state, x, *rest: 2 * x[0] * average_operations(x[2], x[1]),
    ema_scan_gradients=lambda grad_y, grad_state, kept, x, *rest: 2 * x[0] * average_operations(x[2], x[1]),
    ema_step=lambda x, *rest: x[0] * average_operations(x[1], 1),
)
