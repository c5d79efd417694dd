"""Multi-dimensional damped EMA (MEGA, section 3.1; MEGALODON, section 3.1): one public function and its paths.

Choice of :func:`damped_ema`, from measurements by ``python -m fairseq_mega.lab.benchmarks kernels``:

* ``native_fft``, an FFT in the shared memory of a GPU, where N exceeds FFT_COMPONENTS, for whole sequences of up to
  16384 steps. (FFT_COMPONENTS is an estimate from counted operations, not measured on a GPU.)
* ``native``, the compiled scan over time, wherever it is built for the tensor's device and dtype. Its work grows with
  N, an FFT's does not; still, for N = 16 the scan needs a sixth to a twentieth of the FFT's time.
* ``torch_fft``, the convolution by torch's FFT, elsewhere (float64, no extension).
* the recurrence, fused in the compiled kernels, for a single step of a stream without gradients.
"""

from functools import partial
from typing import Any, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_mega.ops.activation import PATHS as ACTIVATIONS
from fairseq_mega.ops.activation import add_skip, silu
from fairseq_mega.ops.common.dispatch import Operator, Path, check_steps, kernels_unavailable
from fairseq_mega.ops.common.native import DTYPES
from fairseq_mega.ops.dropout import dropout as drop
from fairseq_mega.ops.fft_conv import ring_unavailable

from .coefficients import EMACoefficients, complex_ema_coefficients, compute_dtype, ema_coefficients, ema_kernel
from .fft import ema_native_fft, ema_torch_fft
from .native import Gate, ema_native, ema_native_step, has_gate
from .padding import ema_of_real_steps, must_move_padding
from .reference import ema_reference, ema_step
from .streaming import ema_fft_documents, ema_fft_streaming

__all__ = [
    "EMACoefficients",
    "complex_ema_coefficients",
    "compute_dtype",
    "damped_ema",
    "ema_coefficients",
    "ema_kernel",
    "gated_ema",
    "gated_ema_step",
]

FFT_COMPONENTS = 48


def _prefers_kernels(x: Tensor, coefficients: EMACoefficients, length: int, whole: bool) -> bool:
    return coefficients.expansion.dtype == torch.float32


def _prefers_native_fft(x: Tensor, coefficients: EMACoefficients, length: int, whole: bool) -> bool:
    many = coefficients.expansion.size(-1) > FFT_COMPONENTS
    return whole and x.is_cuda and many and coefficients.expansion.dtype == torch.float32


def _fft_unavailable(x: Tensor, coefficients: EMACoefficients, length: int, whole: bool) -> Optional[str]:
    return ring_unavailable(x.device, length)


# The arguments of a call are x (B, ..., D), the coefficients, the length of the longest convolution if it is known, and
# whether the call is whole: it neither carries states nor separates documents.
PATHS = Operator(
    "ema",
    Path("reference"),
    Path("torch_fft"),
    Path("native", kernels_unavailable, DTYPES, suits=_prefers_kernels),
    Path("native_fft", _fft_unavailable, DTYPES, suits=_prefers_native_fft),
)


def damped_ema(
    x: Tensor,
    coefficients: EMACoefficients,
    *,
    padding_mask: Optional[Tensor] = None,
    reset_mask: Optional[Tensor] = None,
    bidirectional: bool = False,
    shift: bool = False,
    truncation: Optional[int] = None,
    state: Optional[Tensor] = None,
    return_state: bool = False,
    gate: Optional[Gate] = None,
    path: Optional[str] = None,
) -> Tuple[Tensor, Optional[Tensor]]:
    """Run the damped EMA over the time axis.

    Args:
        x: (B, L, D), any floating dtype; computed in float32 (float64 for float64), B and L may be 0.
        coefficients: each (D, N), or (2D, N) if bidirectional, real or complex; N = 0 returns zeros.
        padding_mask: (B, L) bool, True = padding, which does not exist for the EMA: it neither feeds nor decays the
            state, and a lag is a number of real steps. The output at padding is finite. Before the first and after
            the last real step of a call without states it is that of zero inputs, which batch norm reads in training.
        reset_mask: (B, L) bool, True at the first step of a document: nothing passes between it and the step before,
            in either direction. A document that begins at step 0 discards ``state``.
        bidirectional: add a second EMA that runs from the future to the past.
        shift: exclude the current position from the future part (image models); otherwise both parts count it.
        truncation: reach of the kernel in steps, None for no limit. It limits the parallel form only: a call with a
            state, or one that returns it, runs the unlimited recurrence, as in the published code.
        state: (B, D, N), the EMA's memory before the first step, complex if a coefficient is; causal only.
        return_state: also return the memory after each row's last real step.
        gate: what follows; the scan's kernel for GPUs computes it, except with both padding and states.
        path: "reference", "torch_fft", or one by compiled kernels, "native" or "native_fft" (CUDA), to force a path;
            "auto" for the choice made here; None for the environment's choice (see
            :mod:`fairseq_mega.ops.common.dispatch`).

    Returns:
        y (B, L, D) in the dtype of x, and the state (B, D, N) in float32 (float64, or complex of that precision) or
        None.

    Raises:
        ValueError: for an x without three axes, a state with a bidirectional EMA, a truncation below 1, an unknown
            path, or coefficients that do not fit x.
        RuntimeError, TypeError: where a forced path cannot run (the message names the remedy).

    Source: MEGA (Ma et al., ICLR 2023), Eq. 5 and Appendix A; MEGALODON (Ma et al., NeurIPS 2024), Eq. 2;
    bidirectional forms as in the published code, in which padding between real steps decays the state.
    """
    check_steps("EMA", x, coefficients.log_decay.size(0) // (2 if bidirectional else 1))
    streaming = return_state or state is not None
    if streaming and bidirectional:
        raise ValueError("a bidirectional EMA reads the whole sequence and cannot carry a state")
    if truncation is not None and truncation < 1:
        raise ValueError(f"EMA truncation must be at least 1 (or None for no truncation), found {truncation}")
    length = x.size(1) if reset_mask is None else 1
    path = PATHS.choose(path, x, coefficients, length, not streaming and reset_mask is None)
    fused = gate is not None and path == "native" and coefficients.log_decay.numel() > 0 and x.numel() > 0
    fused = fused and has_gate(x) and not (streaming and padding_mask is not None)
    fused = fused and ACTIVATIONS.choose(None, x) == "native"
    run = partial(
        _run,
        path=path,
        coefficients=coefficients,
        bidirectional=bidirectional,
        shift=shift,
        truncation=None if streaming else truncation,
        return_state=return_state,
        gate=gate if fused else None,
    )
    movable = None if path == "reference" or x.numel() == 0 else padding_mask
    with torch.autocast(x.device.type, enabled=False):
        if movable is not None and must_move_padding(movable, reset_mask, state, return_state):
            y, new_state = ema_of_real_steps(run, x, coefficients, movable, reset_mask, state, return_state)
        else:
            y, new_state = run(x, padding_mask, reset_mask, state)
    y = y.to(x.dtype)
    if gate is not None and not fused:
        if gate.activated:
            y = silu(y, skip=x, omega=gate.omega, dropout=gate.dropout)
        else:
            y = add_skip(y, x, gate.omega)
    return y, new_state if return_state else None


def _run(
    x: Tensor,
    padding_mask: Optional[Tensor],
    reset_mask: Optional[Tensor],
    state: Optional[Tensor] = None,
    *,
    path: str,
    coefficients: EMACoefficients,
    return_state: bool,
    gate: Optional[Gate],
    **directions: Any,
) -> Tuple[Tensor, Optional[Tensor]]:
    """Run a path. All but the reference carry a state through padding; new states may be returned unasked."""
    if x.numel() == 0:  # no steps: the product has no element, and gradients of zero
        y: Tensor = x * sum(coefficient.real.sum() for coefficient in coefficients)
        dtype = coefficients.log_decay.dtype if coefficients.is_complex else compute_dtype(x)
        shape = x.size(0), x.size(-1), coefficients.log_decay.size(-1)
        return y, x.new_zeros(shape, dtype=dtype) if state is None else state
    if coefficients.log_decay.size(-1) == 0:
        return torch.zeros_like(x), x.new_zeros(x.size(0), x.size(-1), 0, dtype=compute_dtype(x))
    if path == "native":
        directions.update(padding_mask=padding_mask, reset_mask=reset_mask, state=state)
        return ema_native(x, coefficients, gate=gate, **directions)
    x = x.to(compute_dtype(x))
    if padding_mask is not None:
        x = x.masked_fill(padding_mask.unsqueeze(-1), 0.0)
    if path == "reference":
        directions.update(padding_mask=padding_mask, reset_mask=reset_mask, state=state)
        return ema_reference(x, coefficients, **directions)
    convolve = ema_native_fft if path == "native_fft" else ema_torch_fft
    if reset_mask is not None:
        directions.update(state=state, return_state=return_state, convolve=convolve)
        return ema_fft_documents(x, coefficients, reset_mask, **directions)
    if state is None and not return_state:
        return convolve(x, coefficients, **directions), None
    if x.size(1) == 1:
        y, new_state = ema_step(x[:, 0], coefficients, state)
        return y.unsqueeze(1), new_state
    return ema_fft_streaming(x, coefficients, state, convolve=convolve)


def gated_ema(
    x: Tensor,
    coefficients: EMACoefficients,
    omega: Tensor,
    *,
    activated: bool = True,
    dropout: float = 0.0,
    padding_mask: Optional[Tensor] = None,
    reset_mask: Optional[Tensor] = None,
    state: Optional[Tensor] = None,
    return_state: bool = False,
    **options: Any,
) -> Tuple[Tensor, Optional[Tensor]]:
    """Run MEGA's EMA sub-layer, ``SiLU(EMA(x) + omega x)``, or MEGALODON's, which has no SiLU.

    :func:`gated_ema_step` computes a single step of a stream.

    Args:
        x, coefficients, padding_mask, reset_mask, state, return_state, options: as in :func:`damped_ema`.
        omega: (D,), weight of the skip, which includes padding.
        activated: whether there is a SiLU.
        dropout: probability of dropping an element of the SiLU.

    Returns:
        As :func:`damped_ema`.

    Source: MEGA, Eq. 5 and 6; omega and SiLU are the published code's.
    """
    if return_state and x.size(1) == 1 and padding_mask is None and reset_mask is None:
        out, new_state = gated_ema_step(x[:, 0], coefficients, omega, state, activated=activated)
        return drop(out.unsqueeze(1), dropout) if dropout != 0.0 else out.unsqueeze(1), new_state
    options.update(padding_mask=padding_mask, reset_mask=reset_mask, state=state, return_state=return_state)
    return damped_ema(x, coefficients, gate=Gate(omega, activated, dropout), **options)


def gated_ema_step(
    x: Tensor, coefficients: EMACoefficients, omega: Tensor, state: Optional[Tensor], *, activated: bool = True
) -> Tuple[Tensor, Tensor]:
    """One step of :func:`gated_ema`, in one kernel where no gradient is needed.

    Args:
        x: (B, D).
        coefficients: each (D, N).
        omega: (D,), weight of the skip.
        state: (B, D, N), or None for zeros.
        activated: whether there is a SiLU.

    Returns:
        (B, D) in the dtype of x, and the new state (B, D, N).

    Source: MEGA, Eq. 5 and 6; omega and SiLU are the published code's.
    """
    fused = not torch.is_grad_enabled() and coefficients.log_decay.size(-1) > 0 and (activated or x.is_cuda)
    if fused and PATHS.choose(None, x, coefficients, 1, False) == "native":
        return ema_native_step(x, coefficients, state, omega.float(), activated=activated)
    y, new_state = damped_ema(x.unsqueeze(1), coefficients, state=state, return_state=True)
    assert new_state is not None
    out = torch.addcmul(y[:, 0], x, omega.to(x.dtype))
    return F.silu(out) if activated else out, new_state
