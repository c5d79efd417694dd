"""One step of all layers of a trunk in one call of a kernel, where the kernels compute each of them."""

from itertools import chain
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor

from fairseq_mega.ops.attention import FUNCTIONS
from fairseq_mega.ops.common import native
from fairseq_mega.ops.timestep_norm import TimestepNormState, fresh_statistics, widened

from .time_buffer import TimeBuffer
from .weights import FeedForwardWeights, GatedAttentionWeights, LayerWeights, NormalizedAttentionWeights


class JoinedState(NamedTuple):
    """States of all layers between two steps, see :class:`.reference.StepState`; all have equally many keys."""

    ema: Sequence[Optional[Tensor]]
    norm: Sequence[Optional[TimestepNormState]]
    keys: Sequence[TimeBuffer]
    values: Sequence[TimeBuffer]


# A step of all layers: of x (B, D) and the states before.
JoinedStep = Callable[[Tensor, JoinedState], Tuple[Tensor, JoinedState]]
Tensors = List[Optional[Tensor]]  # of a layer, in the order of a kernel for all layers


def join(layers: Sequence[LayerWeights]) -> Optional[JoinedStep]:
    """Return consecutive layers as one function of a step; None where no kernel computes all of them.

    Kernels require pre-norm layers with layer norms, and the same settings in all layers.
    """
    attentions: List[Any] = [layer.attention for layer in layers]
    plain = all(a.norm is not None and a.maps is not None for a in attentions)
    if not plain or any(layer.feed_forward.norm is None for layer in layers):
        return None
    settings: Dict[type, Callable[[Any], Any]] = {
        GatedAttentionWeights: lambda a: (a.function, a.most),
        NormalizedAttentionWeights: lambda a: (a.rope_base, a.groups, a.most, a.scale.dtype, a.coefficients.rms),
    }
    kinds = {(type(a), settings[type(a)](a), layer.residual_hops) for a, layer in zip(attentions, layers)}
    if len(kinds) != 1:
        return None
    if isinstance(attentions[0], GatedAttentionWeights):
        return _join_gated(attentions, [layer.feed_forward for layer in layers])
    return _join_normalized(layers, attentions) if attentions[0].scale.dtype == torch.float32 else None


def _join_gated(attentions: Sequence[GatedAttentionWeights], inner: Sequence[FeedForwardWeights]) -> JoinedStep:
    first, biases = attentions[0], [attention.bias for attention in attentions]
    function = FUNCTIONS.index(first.function)
    kept: Dict[int, Tensors] = {}  # tensors of all layers, by the reach of their biases

    def tensors(reach: int) -> Tensors:
        if reach not in kept:
            kept.clear()
            kept[reach] = [
                *chain(*(_gated_tensors(a, bias.table(reach), f) for a, bias, f in zip(attentions, biases, inner)))
            ]
        return kept[reach]

    nothing = [None] * len(attentions)  # no statistics

    def step(x: Tensor, state: JoinedState) -> Tuple[Tensor, JoinedState]:
        past = len(state.keys[0])
        reach = max(bias.bias.reach(past + 1) for bias in biases)
        keys, values, *rooms = _grown(state, first.most)
        weights, begin = tensors(reach), reach - past - 1
        x, ema = native.operators.gated_layers_step(x, weights, state.ema, *rooms, begin, past, function)
        return x, JoinedState(ema, nothing, keys, values)

    return step


def _gated_tensors(attention: GatedAttentionWeights, table: Tensor, inner: FeedForwardWeights) -> Tensors:
    """Return the tensors of a MEGA layer, and of the table of its relative bias."""
    assert attention.norm is not None and attention.maps is not None and inner.norm is not None
    own = (*attention.norm, *chain(*attention.maps), attention.kappa, attention.mu, *attention.coefficients, table)
    return [*own, *inner.norm, *chain(*inner.maps)]


def _join_normalized(
    layers: Sequence[LayerWeights], attentions: Sequence[NormalizedAttentionWeights]
) -> Optional[JoinedStep]:
    first, two_hops = attentions[0], layers[0].residual_hops == 2
    tensors = [*chain(*(_normalized_tensors(a, layer.feed_forward) for a, layer in zip(attentions, layers)))]

    def step(x: Tensor, state: JoinedState) -> Tuple[Tensor, JoinedState]:
        past = len(state.keys[0])
        statistics = [widened(fresh_statistics(x, first.groups) if s is None else s) for s in state.norm]
        keys, values, *rooms = _grown(state, first.most)
        x, after, *now = native.operators.normalized_layers_step(
            x,
            tensors,
            *map(list, zip(*statistics)),
            torch.view_as_real(first.turns(past)),
            first.coefficients.rms,
            two_hops,
            [None if ema is None else torch.view_as_real(ema) for ema in state.ema],
            *rooms,
            past,
        )
        norm = [*map(TimestepNormState, *now)]
        return x, JoinedState([*map(torch.view_as_complex, after)], norm, keys, values)

    return step


def _normalized_tensors(attention: NormalizedAttentionWeights, inner: FeedForwardWeights) -> Tensors:
    """Return the tensors of a MEGALODON layer."""
    assert attention.norm is not None and attention.maps is not None and inner.norm is not None
    own = (*attention.norm, *chain(*attention.maps), attention.scale, attention.offset, *attention.coefficients[:5])
    return [*own, *inner.norm, *chain(*inner.maps), inner.scale]


def _grown(
    state: JoinedState, most: Optional[int]
) -> Tuple[List[TimeBuffer], List[TimeBuffer], List[Tensor], List[Tensor]]:
    """Return keys and values with room for a step, and their whole memory."""
    keys, values = ([one.grow(1, most) for one in buffers] for buffers in (state.keys, state.values))
    return keys, values, [one.room for one in keys], [one.room for one in values]
