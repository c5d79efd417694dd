"""The protocol of layers: hidden states, a context, memory and cache in; hidden states, memory and cache out."""

from typing import Any, Callable, List, NamedTuple, Optional, Protocol, Sequence, Set, Tuple

import torch
from torch import Tensor, nn

from fairseq_mega.ops.decoding import StepFunctions, TimeBuffer

from .attention_cache import AttentionCache
from .documents import Documents
from .parameter_cache import hooks_of
from .relay import Relay
from .state import LayerCache, LayerMemory


class LayerContext(NamedTuple):
    """A layer's inputs besides the hidden states, the same for all layers of a trunk.

    With ``return_state`` each row returns its memory after its last real step, whatever padding follows. Padded steps
    keep their places in the chunk. A row that ends in padding within a chunk therefore continues without its cache: its
    next step begins a chunk. With the cache the call raises a ValueError, unless ``given_up`` is True.
    """

    padding_mask: Optional[Tensor] = None  # (B, L) bool, True = padding
    encoder_out: Optional[Tensor] = None  # (B, S, D), for layers with cross attention
    encoder_padding_mask: Optional[Tensor] = None  # (B, S) bool, True = padding
    return_state: bool = False  # also return memory and cache, to continue from here; causal layers only
    need_weights: bool = False  # also return the cross-attention weights
    documents: Optional[Documents] = None  # that begin within the rows of x; PackedTexts for bidirectional layers
    relay: Optional[Relay] = None  # x is one process's piece of a sequence: the relay receives and sends memory
    given_up: bool = False  # rows that continue after padding are dropped beams of a search: no error
    steps: Optional[StepFunctions] = None  # for x, if it is a single step; None: each sub-layer finds its own


PLAIN = LayerContext()  # one call on whole sequences without padding


class LayerOutput(NamedTuple):
    """Result of a layer."""

    hidden: Tensor  # (B, L, D)
    memory: Optional[LayerMemory] = None
    cache: Optional[LayerCache] = None
    cross_weights: Optional[Tensor] = None  # (B, L, S)


class Layer(Protocol):
    """A layer of any kind: MEGA's, MEGALODON's, the Transformer's."""

    def __call__(
        self,
        x: Tensor,
        context: LayerContext = PLAIN,
        memory: Optional[LayerMemory] = None,
        cache: Optional[LayerCache] = None,
    ) -> LayerOutput:
        """Apply the layer.

        Args:
            x: (B, L, D), the steps after ``memory`` and ``cache``.
            context: padding, the encoder's output, and the results to return.
            memory: of the steps before, None at the beginning of the streams.
            cache: of the unfinished chunk before x, None where x begins a chunk.
        """
        ...


def is_plain(context: LayerContext) -> bool:
    """Return whether a call returns memory and cache, and has neither padding nor documents.

    Functions of single steps accept no padding and no documents.
    """
    return context.return_state and context.documents is None and context.padding_mask is None


def single_step_of(layer: nn.Module, functions: StepFunctions, dtype: torch.dtype) -> Callable[..., LayerOutput]:
    """Return a function with a layer's signature for the single steps of a stream; the layer itself if it has none.

    The function uses the parameters and settings that the modules have now, without a call of the modules. The layer
    itself is returned where a module has hooks, or a ``forward`` of another class than its ``single_step``.

    Args:
        layer: any layer; a layer with a method ``single_step`` has a function of single steps.
        functions: of the steps.
        dtype: of the hidden states.
    """
    if _is_watched(layer):
        return layer
    single_step: Any = layer.single_step
    return single_step(functions, dtype) or layer


class JoinedStep(Protocol):
    """All layers of a trunk as one function of single steps without padding."""

    def __call__(
        self, x: Tensor, memories: Sequence[Optional[LayerMemory]], caches: Sequence[LayerCache]
    ) -> Tuple[Tensor, List[LayerMemory], List[LayerCache]]:
        """Apply the layers to x (B, D), which follows their memories and caches of equally many steps."""
        ...


class Steps(NamedTuple):
    """Functions of the single steps of a trunk's layers."""

    layers: Sequence[Callable[..., LayerOutput]]  # one for each layer, with a layer's signature
    joined: Optional[JoinedStep] = None  # all at once


def steps_of(layers: Sequence[nn.Module], functions: StepFunctions, dtype: torch.dtype) -> Steps:
    """Return functions of the single steps of layers, with the settings that they have now.

    Layers of one class with a static method ``joined_step`` are joined where it returns a function.
    """
    kinds: Set[Any] = set(map(type, layers))
    if len(kinds) == 1 and not any(map(_is_watched, layers)):
        join = getattr(kinds.pop(), "joined_step", None)
        joined = None if join is None else join(layers, functions, dtype)
        if joined is not None:
            return Steps(layers, joined)
    return Steps([single_step_of(layer, functions, dtype) for layer in layers])


def are_joinable(caches: Optional[Sequence[Optional[LayerCache]]], dtype: torch.dtype) -> bool:
    """Return whether a joined step of a type can continue from caches: all of equally many steps, without padding."""
    if caches is None or not all(cache is not None and cache.attention.suits_step_of(dtype) for cache in caches):
        return False
    return len({len(cache.attention.keys) for cache in caches if cache is not None}) == 1


class Past(NamedTuple):
    """States of the EMAs, keys and values of all layers before a step."""

    states: List[Optional[Tensor]]
    keys: List[TimeBuffer]
    values: List[TimeBuffer]


def past_of(memories: Sequence[Optional[LayerMemory]], caches: Sequence[LayerCache]) -> Past:
    """Return the states, keys and values that the joined step of all layers continues."""
    return Past(
        [None if memory is None else memory.ema for memory in memories],
        [cache.attention.keys for cache in caches],
        [cache.attention.values for cache in caches],
    )


def grown_caches(
    caches: Sequence[LayerCache], keys: Sequence[TimeBuffer], values: Sequence[TimeBuffer], chunk_size: int
) -> List[LayerCache]:
    """Return the caches of layers after a step, without finished chunks."""
    return [
        LayerCache(AttentionCache(key, value, None, cache.attention.prepared).unfinished(chunk_size))
        for cache, key, value in zip(caches, keys, values)
    ]


def _is_watched(layer: nn.Module) -> bool:
    """Return whether a layer has hooks, or parts with a ``forward`` of another class than their ``single_step``."""
    parts: List[Any] = [part for part in (layer, *layer.children()) if hasattr(part, "single_step")]
    return layer not in parts or any(hooks_of(layer.modules())) or any(map(_calls_otherwise, parts))


def _calls_otherwise(module: nn.Module) -> bool:
    owner = next(kind for kind in type(module).__mro__ if "forward" in vars(kind))
    return "single_step" not in vars(owner) or "forward" in vars(module)
