"""Single steps by the compiled kernels; arguments and results as in :mod:`.reference`, all float32."""

import functools
from itertools import chain
from typing import Optional, Tuple

import torch
from torch import Tensor

from fairseq_mega.ops.attention import FUNCTIONS
from fairseq_mega.ops.common import native
from fairseq_mega.ops.timestep_norm import TimestepNormState, fresh_statistics, widened

from . import reference
from .reference import StepState
from .time_buffer import TimeBuffer
from .weights import (
    FeedForwardWeights,
    GatedAttentionWeights,
    NormalizedAttentionWeights,
    StepCoefficients,
    StepNorm,
)


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


def gated_attention_step(x: Tensor, weights: GatedAttentionWeights, state: StepState) -> Tuple[Tensor, StepState]:
    """Compute :func:`.reference.gated_attention_step`, in one call where the kernel has a form for all maps."""
    if weights.maps is None:
        return gated_attention_step_of_many(x, weights, state)
    residual = x
    if weights.norm is None and weights.normalize is not None:
        x = weights.normalize(x)
    past = len(state.keys)
    keys, values = state.keys.grow(1, weights.most), state.values.grow(1, weights.most)
    out, ema = native.operators.gated_attention_step(
        x,
        residual,
        *norm_arguments(weights.norm),
        *chain(*weights.maps),
        weights.kappa,
        weights.mu,
        *weights.coefficients,
        state.ema,
        weights.bias.at(past + 1),
        keys.room,
        values.room,
        past,
        FUNCTIONS.index(weights.function),
    )
    out = out if weights.normalize_after is None else weights.normalize_after(out)
    return out, StepState(ema, None, keys, values)


def normalized_attention_step(
    x: Tensor, weights: NormalizedAttentionWeights, state: StepState
) -> Tuple[Tensor, StepState]:
    """Compute :func:`.reference.normalized_attention_step`, in one call where the kernel has a form for all weights."""
    if weights.norm is None or weights.maps is None or weights.scale.dtype != torch.float32:
        return reference.normalized_attention_step(x, weights, state)
    past = len(state.keys)
    keys, values = state.keys.grow(1, weights.most), state.values.grow(1, weights.most)
    out, ema, *statistics = native.operators.normalized_attention_step(
        x,
        *weights.norm,
        *widened(fresh_statistics(x, weights.groups) if state.norm is None else state.norm),
        *chain(*weights.maps),
        weights.scale,
        weights.offset,
        torch.view_as_real(weights.turns(past)),
        *weights.coefficients,
        None if state.ema is None else torch.view_as_real(state.ema),
        keys.room,
        values.room,
        past,
    )
    return out, StepState(torch.view_as_complex(ema), TimestepNormState(*statistics), keys, values)


def feed_forward_step(x: Tensor, residual: Tensor, weights: FeedForwardWeights) -> Tensor:
    """``residual + scale * W2 SiLU(W1 x)``, with SiLU of one half times the other where W1 has twice W2's inputs.

    Args:
        x, residual: (B, D).
        weights: the parameters, norms included.
    """
    if weights.norm is None and weights.normalize is not None:
        x = weights.normalize(x)
    first, second = weights.maps
    norm = norm_arguments(weights.norm)
    out = native.operators.feed_forward_step(x, residual, *norm, *first, *second, weights.scale)
    return out if weights.normalize_after is None else weights.normalize_after(out)


def norm_arguments(norm: Optional[StepNorm]) -> Tuple[bool, Optional[Tensor], Optional[Tensor]]:
    """Return whether there is a norm, its scale and its shift."""
    return (False, None, None) if norm is None else (True, *norm)
