"""Single steps by the compiled kernels; arguments and results as in :mod:`.reference`, all float32."""

import functools
from typing import Optional, Tuple

import torch
from torch import Tensor

from fairseq_mega.ops.attention import FUNCTIONS
from fairseq_mega.ops.common import native
from fairseq_mega.ops.timestep_norm import TimestepNormState, widened

from . import reference
from .time_buffer import TimeBuffer
from .weights import GatedAttentionWeights, NormalizedAttentionWeights, StepCoefficients, StepMap, StepNorm


def gated_ema_step(x: Tensor, coefficients: StepCoefficients, state: Optional[Tensor]) -> Tuple[Tensor, Tensor]:
    """Compute :func:`.reference.gated_ema_step`."""
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
    """Compute :func:`.reference.attention_step`; the kernel writes to the room behind the buffers."""
    past, index = len(keys), FUNCTIONS.index(function)
    keys, values = keys.grow(1, most), values.grow(1, most)
    out = native.operators.attention_step(gates, value, kappa, mu, bias, keys.room, values.room, past, index)
    return out, keys, values


def mix_step(residual: Tensor, gates: Tensor, projected: Tensor) -> Tensor:
    """Compute :func:`.reference.mix_step`."""
    return native.operators.mix_step(residual, gates, projected)


PARTS = reference.StepParts(gated_ema_step, attention_step, mix_step)
gated_attention_step_of_many = functools.partial(reference.gated_attention_step, parts=PARTS)


def gated_attention_step(
    x: Tensor,
    weights: GatedAttentionWeights,
    state: Optional[Tensor],
    bias: Tensor,
    keys: TimeBuffer,
    values: TimeBuffer,
    function: str,
    most: Optional[int],
) -> Tuple[Tensor, Tensor, TimeBuffer, TimeBuffer]:
    """Compute :func:`.reference.gated_attention_step`, in one call where the kernel has a form for all maps."""
    if weights.maps is None:
        return gated_attention_step_of_many(x, weights, state, bias, keys, values, function, most)
    residual = x
    if weights.norm is None and weights.normalize is not None:
        x = weights.normalize(x)
    past, index = len(keys), FUNCTIONS.index(function)
    keys, values = keys.grow(1, most), values.grow(1, most)
    value, gates, output = weights.maps
    out, state = native.operators.gated_attention_step(
        x,
        residual,
        *norm_arguments(weights.norm),
        *value,
        *gates,
        *output,
        weights.kappa,
        weights.mu,
        *weights.coefficients,
        state,
        bias,
        keys.room,
        values.room,
        past,
        index,
    )
    return out, state, keys, values


def normalized_attention_step(
    x: Tensor,
    weights: NormalizedAttentionWeights,
    statistics: TimestepNormState,
    turns: Tensor,
    state: Optional[Tensor],
    keys: TimeBuffer,
    values: TimeBuffer,
    most: Optional[int],
) -> Tuple[Tensor, TimestepNormState, Tensor, TimeBuffer, TimeBuffer]:
    """Compute :func:`.reference.normalized_attention_step`, in one call where the kernel has a form for all weights."""
    if weights.norm is None or weights.maps is None or weights.scale.dtype != torch.float32:
        return reference.normalized_attention_step(x, weights, statistics, turns, state, keys, values, most)
    past = len(keys)
    keys, values = keys.grow(1, most), values.grow(1, most)
    value, gates, output = weights.maps
    before = None if state is None else torch.view_as_real(state)
    out, after, *now = native.operators.normalized_attention_step(
        x,
        *weights.norm,
        *widened(statistics),
        *value,
        *gates,
        *output,
        weights.scale,
        weights.offset,
        torch.view_as_real(turns),
        *weights.coefficients,
        before,
        keys.room,
        values.room,
        past,
    )
    return out, TimestepNormState(*now), torch.view_as_complex(after), keys, values


def timestep_norm_step(x: Tensor, norm: StepNorm, statistics: TimestepNormState) -> Tuple[Tensor, TimestepNormState]:
    """One step x (B, D) of :func:`fairseq_mega.ops.timestep_norm.timestep_norm`, with eps = 1e-5."""
    y, *now = native.operators.timestep_norm_step(x, *norm, *widened(statistics))
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
        norm: the layer norm (eps = 1e-5) that x still needs, None where it needs none.
        maps: W1 and W2.
        scale: (D,), None for one.
    """
    first, second = maps
    return native.operators.feed_forward_step(x, residual, *norm_arguments(norm), *first, *second, scale)


def norm_arguments(norm: Optional[StepNorm]) -> Tuple[bool, Optional[Tensor], Optional[Tensor]]:
    """Return whether there is a norm, its scale and its shift."""
    return (False, None, None) if norm is None else (True, *norm)
