"""Single steps of a stream by the functions of :mod:`fairseq_mega.ops.decoding`: of an attention, a layer, a trunk."""

import functools
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor, nn

from fairseq_mega.ops.decoding import (
    JoinedState,
    LayerWeights,
    StepFunctions,
    StepState,
    TimeBuffer,
    step_functions,
)

from .attention_cache import AttentionCache
from .layer import PLAIN, AttentionOutput, LayerContext, LayerOutput
from .parameter_cache import ParameterCache, is_watched
from .state import LayerCache, LayerMemory, memory_for

# Of a module, the functions of a step and the dtype of the hidden states: a function with the module's signature for
# single steps without padding, which uses the parameters and settings that the module has now, or None.
MakeStep = Callable[[Any, StepFunctions, torch.dtype], Optional[Callable[..., Any]]]


def by_single_steps(make: MakeStep) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate the ``forward`` of a causal attention or layer: ``make`` computes single steps where it can.

    Args:
        make: :func:`attention_step` or :func:`layer_step`.
    """

    def decorate(forward: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(forward)
        def run(
            self: nn.Module,
            x: Tensor,
            context: LayerContext = PLAIN,
            memory: Any = None,
            cache: Any = None,
            *norms: Any,
        ) -> Any:
            if x.size(1) == 1 and not self.training and accepts_steps(context):
                past = cache.attention if isinstance(cache, LayerCache) else cache
                steps = context.steps or step_functions(x)
                if steps is not None and (past is None or past.suits_step_of(x.dtype)):
                    prepared = ParameterCache() if past is None else past.prepared
                    key = steps, x.dtype
                    step = prepared.get_of_all(self, (self, *key), lambda: make(self, *key))
                    if step is not None:
                        return step(x, context, memory, cache)
            return forward(self, x, context, memory, cache, *norms)

        run.single_step = make  # type: ignore[attr-defined]  # a subclass with another forward lacks it
        return run

    return decorate


def accepts_steps(context: LayerContext) -> bool:
    """Return whether functions of single steps accept a context: with memory and cache, nothing else."""
    plain = context.documents is None and context.padding_mask is None and context.relay is None
    return context.return_state and plain and context.place is None


def attention_step(attention: Any, functions: StepFunctions, dtype: torch.dtype) -> Optional[Callable[..., Any]]:
    """Return an attention as a function of single steps; None where operators on sequences compute them.

    Args:
        attention: has a method ``step_weights(dtype)``, and the widths of keys and values as ``cache_widths``.
        functions: of the steps.
        dtype: of the hidden states.
    """
    weights = None if is_watched(attention) else attention.step_weights(dtype)
    run = None if weights is None else functions.attention(weights)
    if weights is None or run is None:
        return None

    def step(
        x: Tensor, context: LayerContext, memory: Optional[LayerMemory], cache: Optional[AttentionCache]
    ) -> AttentionOutput:
        if cache is None:
            keys, values = (TimeBuffer(x.new_empty(x.size(0), 0, width)) for width in attention.cache_widths)
            cache = AttentionCache(keys, values, None, ParameterCache())
        ema, norm = memory_for(x, memory) or (None, None)
        out, state = run(x[:, 0], weights, StepState(ema, norm, cache.keys, cache.values))
        kept = AttentionCache(state.keys, state.values, None, cache.prepared).unfinished(attention.chunk_size)
        assert state.ema is not None
        return AttentionOutput(out.unsqueeze(1), LayerMemory(state.ema, state.norm), kept)

    return step


def layer_step(layer: Any, functions: StepFunctions, dtype: torch.dtype) -> Optional[Callable[..., LayerOutput]]:
    """Return a layer as a function of single steps; None where not both of its sub-layers have one.

    Args:
        layer: of the parts ``attention`` and ``feed_forward``, perhaps with ``cross_attention`` between them.
        functions, dtype: as in :func:`attention_step`.
    """
    attention, cross_attention = layer.attention, getattr(layer, "cross_attention", None)
    inner, run, two_hops = _feed_forward_weights(layer), functions.feed_forward, layer.residual_hops == 2
    attend = attention_step(attention, functions, dtype)
    if attend is None or inner is None or run is None or is_watched(layer):
        return None

    def step(
        x: Tensor,
        context: LayerContext = PLAIN,
        memory: Optional[LayerMemory] = None,
        cache: Optional[LayerCache] = None,
    ) -> LayerOutput:
        if cache is not None and not cache.attention.suits_step_of(x.dtype):
            return layer(x, context, memory, cache)
        source, weights = None if cache is None else cache.cross_attention, None
        out = attend(x, context, memory, None if cache is None else cache.attention)
        hidden = out.hidden
        if cross_attention is not None:
            if source is None:
                source = cross_attention.start(context.encoder_out, context.encoder_padding_mask)
            hidden, source, weights = cross_attention(hidden, source, context.need_weights)
        y = run(hidden[:, 0], (x if two_hops else hidden)[:, 0], inner)
        return LayerOutput(y.unsqueeze(1), out.memory, LayerCache(out.cache, source), weights)

    return step


def _feed_forward_weights(layer: Any) -> Any:
    return None if layer.feed_forward is None else layer.feed_forward.step_weights()


class Steps(NamedTuple):
    """Functions of the single steps of a trunk's layers."""

    layers: Sequence[Callable[..., LayerOutput]]  # one for each layer, with a layer's signature
    joined: Optional["TrunkStep"] = None  # all at once


# All layers as a function of one step x (B, D), their memories, and their caches of equally many steps.
TrunkStep = Callable[
    [Tensor, Sequence[Optional[LayerMemory]], Sequence[LayerCache]], Tuple[Tensor, List[LayerMemory], List[LayerCache]]
]


def steps_of(layers: Sequence[nn.Module], functions: StepFunctions, dtype: torch.dtype) -> Steps:
    """Return functions of the single steps of layers, with the parameters and settings that they have now.

    The functions call no module, so that a layer with hooks, or with a ``forward`` of its own, is its own function.
    """
    makes = [getattr(type(layer).forward, "single_step", None) for layer in layers]
    joined = _joined_step(layers, functions, dtype) if all(make is layer_step for make in makes) else None
    if joined is not None:
        return Steps(layers, joined)
    return Steps([(make and make(layer, functions, dtype)) or layer for make, layer in zip(makes, layers)])


def _joined_step(layers: Sequence[Any], functions: StepFunctions, dtype: torch.dtype) -> Optional[TrunkStep]:
    parts: List[LayerWeights] = []
    if functions.join is None or not layers or any(map(is_watched, layers)):
        return None
    for layer in layers:
        attention, inner = layer.attention.step_weights(dtype), _feed_forward_weights(layer)
        if attention is None or inner is None or getattr(layer, "cross_attention", None) is not None:
            return None
        parts.append(LayerWeights(attention, inner, layer.residual_hops))
    run, chunk_size = functions.join(parts), layers[0].attention.chunk_size
    if run is None:
        return None

    def step(
        x: Tensor, memories: Sequence[Optional[LayerMemory]], caches: Sequence[LayerCache]
    ) -> Tuple[Tensor, List[LayerMemory], List[LayerCache]]:
        before = JoinedState(
            [None if memory is None else memory.ema for memory in memories],
            [None if memory is None else memory.norm for memory in memories],
            [cache.attention.keys for cache in caches],
            [cache.attention.values for cache in caches],
        )
        x, state = run(x, before)
        kept = [
            LayerCache(AttentionCache(keys, values, None, cache.attention.prepared).unfinished(chunk_size))
            for keys, values, cache in zip(state.keys, state.values, caches)
        ]
        after: Any = map(LayerMemory, state.ema, state.norm)  # type: ignore[arg-type]  # no EMA is None after a step
        return x, [*after], kept

    return step


def are_joinable(caches: Optional[Sequence[Optional[LayerCache]]], dtype: torch.dtype) -> bool:
    """Return whether a joined step of a type can continue from caches: all of equally many steps, without padding."""
    if caches is None or not all(cache is not None and cache.attention.suits_step_of(dtype) for cache in caches):
        return False
    return len({len(cache.attention.keys) for cache in caches if cache is not None}) == 1
