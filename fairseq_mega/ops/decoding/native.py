"""Single steps by the compiled kernels; arguments and results as in :mod:`.reference`, all float32."""

from typing import NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from fairseq_mega.ops.attention import FUNCTIONS
from fairseq_mega.ops.common import native
from fairseq_mega.ops.timestep_norm import TimestepNormState

from .coefficients import StepCoefficients
from .time_buffer import TimeBuffer


class StepMap(NamedTuple):
    """A linear map as the kernels take it, see :func:`fairseq_mega.ops.packed_linear.packed_linear`."""

    weight: Tensor  # (outputs, inputs), float32, bfloat16 or int8
    scale: Optional[Tensor]  # (outputs,) float32
    bias: Optional[Tensor]  # (outputs,) float32


def gated_ema_step(x: Tensor, coefficients: StepCoefficients, state: Optional[Tensor]) -> Tuple[Tensor, Tensor]:
    """As :func:`.reference.gated_ema_step`."""
    return native.operators.average_step(x, *coefficients, state)


def attention_step(
    gates: Tensor,
    value: Tensor,
    kappa: Tensor,
    mu: Tensor,
    bias: Tensor,
    keys: TimeBuffer,
    values: TimeBuffer,
    function: str,
    most: Optional[int],
) -> Tuple[Tensor, TimeBuffer, TimeBuffer]:
    """As :func:`.reference.attention_step`; the kernel writes to the room behind the buffers."""
    past, index = len(keys), FUNCTIONS.index(function)
    keys, values = keys.grow(1, most), values.grow(1, most)
    out = native.operators.attention_step(gates, value, kappa, mu, bias, keys.room, values.room, past, index)
    return out, keys, values


def mix_step(residual: Tensor, gates: Tensor, projected: Tensor) -> Tensor:
    """As :func:`.reference.mix_step`."""
    return native.operators.mix_step(residual, gates, projected)


class StepNorm(NamedTuple):
    """Scale and shift of a norm, (D,) float32 each, None for one and zero."""

    scale: Optional[Tensor]
    shift: Optional[Tensor]


def gated_attention_step(
    x: Tensor,
    residual: Tensor,
    norm: Optional[StepNorm],
    maps: Tuple[StepMap, ...],
    kappa: Tensor,
    mu: Tensor,
    coefficients: StepCoefficients,
    state: Optional[Tensor],
    bias: Tensor,
    keys: TimeBuffer,
    values: TimeBuffer,
    function: str,
    most: Optional[int],
) -> Tuple[Tensor, Tensor, TimeBuffer, TimeBuffer]:
    """One step of a gated attention, from its input to its residual sum, in one call.

    Args:
        x, residual: (B, D).
        norm: the layer norm (eps 1e-5) that x still needs, None where it needs none.
        maps: of value, gates and output.
        kappa, mu, bias, keys, values, function, most: of the attention.
        coefficients, state: of the EMA.

    Returns:
        (B, D), the state of the EMA, and the keys and values with the new step.
    """
    past, index = len(keys), FUNCTIONS.index(function)
    keys, values = keys.grow(1, most), values.grow(1, most)
    value, gates, output = maps
    out, state = native.operators.gated_attention_step(
        x,
        residual,
        *norm_arguments(norm),
        *value,
        *gates,
        *output,
        kappa,
        mu,
        *coefficients,
        state,
        bias,
        keys.room,
        values.room,
        past,
        index,
    )
    return out, state, keys, values


class ComplexStepCoefficients(NamedTuple):
    """What a step of a complex EMA, its skip and its norm take."""

    decay: Tensor  # (D, N, 2), float64
    expansion: Tensor  # (D, N)
    projection: Tensor  # (D, N, 2), real part and minus the imaginary part
    omega: Tensor  # (D,)
    norm_scale: Optional[Tensor]  # (D,), None for one
    rms: bool  # an RMS norm follows, else SiLU


class AttentionWeights(NamedTuple):
    """What a step of MEGALODON's attention takes of its parameters."""

    norm: StepNorm  # the timestep norm's
    maps: Tuple[StepMap, ...]  # of value, gates and output
    scale: Tensor  # (2, H, E), of query and key
    offset: Tensor  # (2, H, E)
    ema: ComplexStepCoefficients


def normalized_attention_step(
    x: Tensor,
    weights: AttentionWeights,
    statistics: TimestepNormState,
    turns: Tensor,
    state: Optional[Tensor],
    keys: TimeBuffer,
    values: TimeBuffer,
    most: Optional[int],
) -> Tuple[Tensor, TimestepNormState, Tensor, TimeBuffer, TimeBuffer]:
    """One step of MEGALODON's attention, from its input to its residual sum, timestep norm included, in one call.

    Args:
        x: (B, D).
        weights: the parameters.
        statistics: of the timestep norm, of the steps before.
        turns: (reach, E / 2) complex, of the positions in a chunk.
        state: (B, D, N) complex, None for zeros.
        keys, values, most: as in :func:`gated_attention_step`.

    Returns:
        (B, D), the statistics and the state of the EMA after the step, and the keys and values with it.

    Source: MEGALODON (Ma et al., NeurIPS 2024), Eq. 2, 4 to 9 and 16 to 18.
    """
    past = len(keys)
    keys, values = keys.grow(1, most), values.grow(1, most)
    norm, (value, gates, output), scale, offset, coefficients = weights
    before = None if state is None else torch.view_as_real(state)
    out, after, *now = native.operators.normalized_attention_step(
        x,
        *norm,
        *statistics,
        *value,
        *gates,
        *output,
        scale,
        offset,
        torch.view_as_real(turns),
        *coefficients,
        before,
        keys.room,
        values.room,
        past,
    )
    return out, TimestepNormState(*now), torch.view_as_complex(after), keys, values


def timestep_norm_step(x: Tensor, norm: StepNorm, statistics: TimestepNormState) -> Tuple[Tensor, TimestepNormState]:
    """One step x (B, D) of :func:`fairseq_mega.ops.timestep_norm.timestep_norm`, with eps = 1e-5."""
    y, *now = native.operators.timestep_norm_step(x, *norm, *statistics)
    return y, TimestepNormState(*now)


def feed_forward_step(
    x: Tensor,
    residual: Tensor,
    norm: Optional[StepNorm],
    maps: Tuple[StepMap, ...],
    scale: Optional[Tensor] = None,
) -> Tensor:
    """``residual + scale * W2 SiLU(W1 x)``, with SiLU of one half times the other where W1 has twice W2's inputs.

    Args:
        x, residual: (B, D).
        norm: as in :func:`gated_attention_step`.
        maps: W1 and W2.
        scale: (D,), None for one.
    """
    first, second = maps
    return native.operators.feed_forward_step(x, residual, *norm_arguments(norm), *first, *second, scale)


def norm_arguments(norm: Optional[StepNorm]) -> Tuple[bool, Optional[Tensor], Optional[Tensor]]:
    """Whether there is a norm, its scale and its shift."""
    return (False, None, None) if norm is None else (True, *norm)
