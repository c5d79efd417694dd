"""Single steps by the compiled kernels; arguments and results as in :mod:`.reference`, all float32."""

import functools
from typing import Any, List, Optional, Sequence, Tuple

import torch
from torch import Tensor

from fairseq_mega.ops.attention import FUNCTIONS
from fairseq_mega.ops.common import native
from fairseq_mega.ops.common.operations import attention_operations, average_operations, count, map_operations
from fairseq_mega.ops.timestep_norm import TimestepNormState, widened

from . import reference
from .time_buffer import TimeBuffer
from .weights import GatedAttentionWeights, NormalizedAttentionWeights, StepCoefficients, StepMap, StepNorm, Tensors


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
        norm: the layer norm (eps = 1e-5) to be applied to x, None for none.
        maps: W1 and W2.
        scale: (D,), None for one.
    """
    first, second = maps
    return native.operators.feed_forward_step(x, residual, *norm_arguments(norm), *first, *second, scale)


Buffers = Sequence[TimeBuffer]


def gated_layers_step(
    x: Tensor,
    weights: Tensors,
    first: int,
    states: Sequence[Optional[Tensor]],
    keys: Buffers,
    values: Buffers,
    function: str,
    most: Optional[int],
) -> Tuple[Tensor, List[Tensor], Buffers, Buffers]:
    """One step of consecutive MEGA layers, attention and feed-forward, in one call.

    Args:
        x: (B, D).
        weights: of all layers, see :func:`.weights.gated_layer_tensors`.
        first: the entry of the relative biases' tables for the first step of the past.
        states, keys, values: of each layer, as in :func:`gated_attention_step`; all layers have equally many keys.
        function, most: of all layers.

    Returns:
        (B, D), the states of the EMAs, and the keys and values with the new step.
    """
    past, index = len(keys[0]), FUNCTIONS.index(function)
    keys, values = ([one.grow(1, most) for one in buffers] for buffers in (keys, values))
    rooms = ([one.room for one in buffers] for buffers in (keys, values))
    out, after = native.operators.gated_layers_step(x, weights, states, *rooms, first, past, index)
    return out, after, keys, values


def normalized_layers_step(
    x: Tensor,
    weights: Tensors,
    rms: bool,
    two_hops: bool,
    statistics: Sequence[TimestepNormState],
    turns: Tensor,
    states: Sequence[Optional[Tensor]],
    keys: Buffers,
    values: Buffers,
    most: Optional[int],
) -> Tuple[Tensor, List[TimestepNormState], List[Tensor], Buffers, Buffers]:
    """One step of consecutive MEGALODON layers, attention and feed-forward, in one call.

    Args:
        x: (B, D).
        weights: of all layers, see :func:`.weights.normalized_layer_tensors`.
        rms: an RMS norm follows the EMAs, else SiLU.
        two_hops: a layer's input is the residual of its feed-forward sub-layer.
        statistics, states, keys, values: of each layer, as in :func:`normalized_attention_step`.
        turns, most: of all layers.

    Returns:
        (B, D), the statistics and the states of the EMAs, and the keys and values with the new step.
    """
    past = len(keys[0])
    keys, values = ([one.grow(1, most) for one in buffers] for buffers in (keys, values))
    rooms = ([one.room for one in buffers] for buffers in (keys, values))
    before = [None if state is None else torch.view_as_real(state) for state in states]
    out, after, *now = native.operators.normalized_layers_step(
        x,
        weights,
        *map(list, zip(*map(widened, statistics))),
        torch.view_as_real(turns),
        rms,
        two_hops,
        before,
        *rooms,
        past,
    )
    return out, [*map(TimestepNormState, *now)], [*map(torch.view_as_complex, after)], keys, values


def norm_arguments(norm: Optional[StepNorm]) -> Tuple[bool, Optional[Tensor], Optional[Tensor]]:
    """Return whether there is a norm, its scale and its shift."""
    return (False, None, None) if norm is None else (True, *norm)


def _step_operations(x: Any, maps: Sequence[Any], keys: Any, values: Any, past: int) -> float:
    """Return the operations of a gated attention's step, from the shapes of its tensors."""
    attended = x[0] * attention_operations(keys[-1] + values[-1], 1, past + 1)
    return map_operations(x[0], *maps) + x[0] * average_operations(x[1], 1) + attended


# Not those of all layers: the counter hooks every module, and hooked layers are computed one by one.
count(
    average_step=lambda x, *rest: x[0] * average_operations(x[1], 1),
    attention_step=lambda gates, value, kappa, mu, bias, keys, values, past, *rest: (
        value[0] * attention_operations(keys[-1] + values[-1], 1, past + 1)
    ),
    gated_attention_step=lambda x, *rest: _step_operations(x, rest[4:11:3], *rest[22:25]),
    normalized_attention_step=lambda x, *rest: _step_operations(x, rest[5:12:3], *rest[24:27]),
    feed_forward_step=lambda x, *rest: map_operations(x[0], rest[4], rest[7]),
)
