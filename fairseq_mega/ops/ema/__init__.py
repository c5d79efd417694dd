"""Multi-dimensional damped EMA (MEGA, section 3.1): one public function, :func:`damped_ema`, and its paths."""

import os
from typing import Optional, Tuple

import torch
from torch import Tensor

from .coefficients import EMACoefficients, compute_dtype, ema_coefficients, ema_kernel
from .fft import ema_fft, ema_fft_streaming
from .reference import ema_reference, ema_step

__all__ = ["EMACoefficients", "damped_ema", "ema_coefficients", "ema_kernel"]

PATHS = ("auto", "reference", "fft")
PATH_VARIABLE = "FAIRSEQ_MEGA_EMA_PATH"


def damped_ema(
    x: Tensor,
    coefficients: EMACoefficients,
    *,
    padding_mask: Optional[Tensor] = None,
    bidirectional: bool = False,
    shift: bool = False,
    truncation: Optional[int] = None,
    state: Optional[Tensor] = None,
    return_state: bool = False,
    path: Optional[str] = None,
) -> Tuple[Tensor, Optional[Tensor]]:
    """Run the damped EMA over the time axis.

    Args:
        x: (B, L, D), any floating dtype; computed in float32 (float64 for float64), L at least 1.
        coefficients: each (D, N), or (2D, N) if bidirectional; N = 0 gives zeros.
        padding_mask: (B, L) bool, True = padding: such inputs count as zero.
        bidirectional: add a second EMA that runs from the future to the past.
        shift: leave the current position out of the future part (image models); otherwise both parts count it.
        truncation: reach of the kernel in steps, None for no limit. It limits the parallel form only: a call that
            takes or returns a state runs the unlimited recurrence, as in the published code.
        state: (B, D, N), the EMA's memory before the first step; causal only.
        return_state: also return the memory after the last step.
        path: "reference" or "fft" to force a path, "auto" or None for the choice made here; the environment
            variable FAIRSEQ_MEGA_EMA_PATH forces it where the argument is None.

    Returns:
        y (B, L, D) in the dtype of x, and the state (B, D, N) in float32 (float64) or None.

    Raises:
        ValueError: for a state with a bidirectional EMA, a truncation below 1, an unknown path, or coefficients
            that do not fit x.

    Source: MEGA (Ma et al., ICLR 2023), Eq. 5 and Appendix A; bidirectional and padded forms as in the published code.
    """
    rows = x.size(-1) * (2 if bidirectional else 1)
    streaming = return_state or state is not None
    if coefficients.log_decay.size(0) != rows:
        raise ValueError(f"EMA coefficients have {coefficients.log_decay.size(0)} rows, the input needs {rows}")
    if streaming and bidirectional:
        raise ValueError("a bidirectional EMA sees the whole sequence and cannot carry a state")
    if truncation is not None and truncation < 1:
        raise ValueError(f"EMA truncation must be at least 1 (or None for no truncation), found {truncation}")
    path = path or os.environ.get(PATH_VARIABLE, "auto")
    if path not in PATHS:
        raise ValueError(
            f"unknown EMA path {path!r} (argument `path` or {PATH_VARIABLE}): choose from {', '.join(PATHS)}"
        )

    dtype = compute_dtype(x)
    inputs = x.to(dtype)
    if padding_mask is not None:
        inputs = inputs.masked_fill(padding_mask.unsqueeze(-1), 0.0)
    with torch.autocast(x.device.type, enabled=False):
        if coefficients.log_decay.size(-1) == 0:
            y: Tensor = torch.zeros_like(inputs)
            new_state: Optional[Tensor] = inputs.new_zeros(x.size(0), x.size(-1), 0)
        elif path == "reference":
            y, new_state = ema_reference(
                inputs,
                coefficients,
                bidirectional=bidirectional,
                shift=shift,
                truncation=None if streaming else truncation,
                state=state,
            )
        elif not streaming:
            y = ema_fft(inputs, coefficients, bidirectional=bidirectional, shift=shift, truncation=truncation)
            new_state = None
        elif x.size(1) == 1:
            y, new_state = ema_step(inputs[:, 0], coefficients, state)
            y = y.unsqueeze(1)
        else:
            y, new_state = ema_fft_streaming(inputs, coefficients, state)
    return y.to(x.dtype), new_state if return_state else None
