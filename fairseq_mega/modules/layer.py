"""The protocol of layers: hidden states, a context, memory and cache in; hidden states, memory and cache out."""

from typing import NamedTuple, Optional, Protocol, Union

from torch import Tensor

from fairseq_mega.ops.decoding import Place, StepFunctions

from .attention_cache import AttentionCache, FixedCache
from .documents import Documents
from .relay import Relay
from .state import LayerCache, LayerMemory


class LayerContext(NamedTuple):
    """A layer's inputs besides the hidden states, the same for all layers of a trunk but for the last two.

    Padding does not exist for the memory: it has the same value as without the padded steps, wherever they stand. In
    the attention padded steps keep their places in the chunk, and nothing attends to them. A row that has real steps
    and ends in padding within a chunk therefore continues without its cache: its next step begins a chunk. With the
    cache the call raises a ValueError, unless ``given_up`` is True.
    """

    padding_mask: Optional[Tensor] = None  # (B, L) bool, True = padding
    encoder_out: Optional[Tensor] = None  # (B, S, D), for layers with cross attention
    encoder_padding_mask: Optional[Tensor] = None  # (B, S) bool, True = padding
    return_state: bool = False  # also return memory and cache, to continue from here; causal layers only
    need_weights: bool = False  # also return the cross-attention weights
    documents: Optional[Documents] = None  # that begin within the rows of x; PackedTexts for bidirectional layers
    relay: Optional[Relay] = None  # x is one process's piece of a sequence: the relay receives and sends memory
    given_up: bool = False  # rows that continue after padding are dropped beams of a search: no error
    steps: Optional[StepFunctions] = None  # for x, if it is a single step; None: each layer finds its own
    place: Optional[Place] = None  # of x, a single step, in caches of fixed size; None: the caches grow
    seeds: Optional[Tensor] = None  # of the layer's dropout calls, on a GPU; None: the layer draws them
    products: Optional[Tensor] = None  # (B, L, D), x in the type of products, if the layer before made it


PLAIN = LayerContext()  # one call on whole sequences without padding


class LayerOutput(NamedTuple):
    """Result of a layer."""

    hidden: Tensor  # (B, L, D)
    memory: Optional[LayerMemory] = None
    cache: Optional[LayerCache] = None
    cross_weights: Optional[Tensor] = None  # (B, L, S)
    products: Optional[Tensor] = None  # (B, L, D), hidden in the type of products, if made in the same kernel


class AttentionOutput(NamedTuple):
    """Result of a layer's attention."""

    hidden: Tensor  # (B, L, D)
    memory: Optional[LayerMemory] = None
    cache: Union[AttentionCache, FixedCache, None] = None
    products: Optional[Tensor] = None  # (B, L, D), input of the next sub-layer's products, if made in the same kernel


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
