"""Steps of language models as CUDA graphs: one launch for each token in place of dozens for each layer."""

import itertools
import logging
import weakref
from typing import Any, Callable, Dict, List, Optional, Union

import torch
from torch import Tensor, nn

from fairseq_mega.modules.attention_cache import FixedCache
from fairseq_mega.modules.dropout import Dropout
from fairseq_mega.modules.layer import LayerContext
from fairseq_mega.modules.mega_layer import MegaLayer
from fairseq_mega.modules.megalodon.layer import MegalodonLayer
from fairseq_mega.modules.parameter_cache import ParameterCache, is_watched, versions
from fairseq_mega.modules.single_steps import are_joinable
from fairseq_mega.modules.state import LayerCache, StreamState, named_tensors, with_named_tensors
from fairseq_mega.ops.common.transforms import is_transformed
from fairseq_mega.ops.decoding import place_of

logger = logging.getLogger(__name__)
DEVICES = ("cuda",)  # types of devices with graphs
WARM_UP = 2  # steps before a capture, in which libraries allocate what they keep
_failures: List[str] = []  # reported ones


def reason_against(decoder: Any) -> Optional[str]:
    """Return the reason why no graph computes the steps of a language model's decoder, or None."""
    layers, parts = list(decoder.layers), list(decoder.modules())
    if decoder.chunk_size < 1 or not all(isinstance(layer, (MegaLayer, MegalodonLayer)) for layer in layers):
        return "without chunks keys and values grow, and so do the shapes of a step"
    if decoder.document_token is not None:
        return "the host looks for the beginning of a document at each step"
    if getattr(decoder, "window", 0) > 0:
        return "a window's statistics are computed from its tokens now and then"
    if not isinstance(decoder.embedding.tokens, nn.Embedding):
        return "an adaptive input sorts tokens by their tables, into shapes that depend on the tokens"
    calls = [layer._compiled_call_impl for layer in layers]
    if any(call is not None and not hasattr(call, "leaves_out_steps") for call in calls):
        return "torch.compile makes other kernels of the steps, by itself"
    if any(part.active for part in parts if isinstance(part, Dropout)):
        return "dropout is retained"
    inner = [*layers, decoder.embedding, *([] if decoder.final_norm is None else [decoder.final_norm])]
    if any(map(is_watched, inner)):
        return "hooks, and modules from outside this package, run at each step on the host"
    made = any("parametrizations" in part._modules for part in parts)
    if made or any(parameter.is_inference() for parameter in decoder.parameters()):
        return "nothing tells when the weights change"
    return None


def has_graphs(device: torch.device) -> bool:
    """Return whether decoding on a device uses graphs."""
    return device.type in DEVICES


def capture(run: Callable[[], Tensor], device: torch.device) -> Callable[[], Tensor]:
    """Return a function that launches the kernels of ``run`` as one CUDA graph and returns its result."""
    with torch.cuda.device(device):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # also brings the caller's stream back after a failure
            for _ in range(WARM_UP):
                run()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                out = run()
        torch.cuda.current_stream().wait_stream(side)

    def replay() -> Tensor:
        graph.replay()
        return out

    return replay


class DecodingGraph:
    """The step of a language model for up to ``rows`` streams, captured once and replayed for each token.

    All that a step reads and writes has its place and its size for good: tokens, the order of the rows, the position in
    the chunk, memory, and the keys and values of a chunk. At a chunk's end the position returns to 0, which hides the
    keys of the finished chunk. One graph therefore serves all positions.

    Args:
        decoder: without a :func:`reason_against` it.
        rows: B, streams that the graph has memory for.
        reorders: the step first selects the rows in ``order``, as beam search does.

    Raises:
        RuntimeError: if the capture fails.
    """

    def __init__(self, decoder: Any, rows: int, reorders: bool) -> None:
        device = decoder.embedding.tokens.weight.device
        self.tokens = torch.zeros(rows, 1, dtype=torch.long, device=device)
        self.order = torch.zeros(rows, dtype=torch.long, device=device)
        self.position = torch.zeros(1, dtype=torch.long, device=device)
        self.rows, self.reorders, self.chunk_size = rows, reorders, decoder.chunk_size
        self.user: Callable[[], Any] = lambda: None  # the streams in this memory
        self.weights = [own for part in decoder.modules() for own in (part._parameters, part._buffers) if own]
        self.versions = versions(self.weights)
        # One step shows the form of the state.
        state = decoder.run_layers(decoder.embedding(self.tokens), LayerContext(return_state=True)).state
        caches = [
            FixedCache.like(cache.attention, layer.attention.heads, self.chunk_size)
            for cache, layer in zip(state.cache, decoder.layers)
        ]
        self.state = state._replace(cache=tuple(map(LayerCache, caches)), prepared=None)
        self.dtype = caches[0].keys.dtype
        self.tensors: Dict[str, Tensor] = named_tensors(self.state)
        self.replay = capture(lambda: self._step(decoder, self.state), device)

    def _step(self, decoder: Any, state: StreamState) -> Tensor:
        """Read the tokens, and return the decoder's output (B, 1, V)."""
        if self.reorders:
            _write(self.tensors, {name: x.index_select(0, self.order) for name, x in self.tensors.items()})
        context = LayerContext(return_state=True, place=place_of(self.position, self.chunk_size))
        out = decoder.run_layers(decoder.embedding(self.tokens), context, state)
        _write(named_tensors(self.state.memory), named_tensors(out.state.memory))
        self.position.add_(1).remainder_(self.chunk_size)
        return decoder.output_layer(out.hidden)

    def is_current(self) -> bool:
        """Return whether the weights are those of the capture."""
        return versions(self.weights) == self.versions

    def is_right(self, decoder: Any) -> bool:
        """Return whether two steps of streams are close to the ordinary ones."""
        numbers = torch.arange(3 * self.rows, device=self.tokens.device) % decoder.embedding.tokens.num_embeddings
        first, *others = numbers.view(3, self.rows, 1)

        def ordinary(tokens: Tensor, state: Optional[StreamState]) -> Any:
            return decoder.run_layers(decoder.embedding(tokens), LayerContext(return_state=True), state)

        state = ordinary(first, None).state
        self.load(decoder, state, len(state.cache[0].attention.keys))
        torch.arange(self.rows, out=self.order)
        for tokens in others:
            self.tokens.copy_(tokens)
            found = self.replay().float()
            out = ordinary(tokens, state)
            expected, state = decoder.output_layer(out.hidden).float(), out.state
            if not (found - expected).norm() <= 0.02 * expected.norm():
                return False
        return True

    def load(self, decoder: Any, state: StreamState, length: int) -> None:
        """Write a state whose caches have ``length`` steps without padding; prepare values of the weights again."""
        caches = [cache.attention for cache in self.state.cache or ()]
        # A write to ``parameter.data`` leaves no trace, so that each stream begins with new values, as elsewhere.
        fresh = [cache._replace(prepared=ParameterCache()) for cache in caches]
        self._step(decoder, self.state._replace(cache=tuple(map(LayerCache, fresh))))
        for old, new in zip(caches, fresh):
            old.prepared.copy_from(new.prepared)
        for tensor in self.tensors.values():
            tensor.zero_()  # of other streams nothing is left, not even NaN
        memory = named_tensors(self.state.memory)
        for name, tensor in named_tensors(state.memory).items():
            memory[name][: tensor.size(0)] = tensor
        for fixed, cache in zip(caches, state.cache or ()):
            fixed.load(cache.attention)  # type: ignore[union-attr]
        self.position.fill_(length)


def _write(places: Dict[str, Tensor], values: Dict[str, Tensor]) -> None:
    """Copy tensors to the places of the same names, those of a type by one kernel."""
    for dtype in dict.fromkeys(place.dtype for place in places.values()):
        names = [name for name, place in places.items() if place.dtype == dtype]
        torch._foreach_copy_([places[name] for name in names], [values[name] for name in names])


class GraphStream:
    """Streams in the memory of a graph; replaces their :class:`StreamState`, and changes with each step.

    Args:
        decoder: of the graph.
        graph: without a user.
        state: of the streams; its caches can be continued by single steps.
        rows: the number of the streams.
    """

    def __init__(self, decoder: Any, graph: DecodingGraph, state: StreamState, rows: int) -> None:
        self.graph, self.rows, self.step = graph, rows, state.step
        self.position = len(state.cache[0].attention.keys)  # type: ignore[index,union-attr]
        self.order: Optional[Tensor] = None  # of the rows in the next step
        graph.load(decoder, state, self.position)
        graph.user = weakref.ref(self)

    def advance(self, tokens: Tensor) -> Tensor:
        """Read the next tokens (B, 1), and return the decoder's output (B, 1, V)."""
        graph, rows = self.graph, self.rows
        graph.tokens[:rows] = tokens
        if graph.reorders:
            graph.order[:rows] = self._rows_now()
        self.order, self.step = None, self.step + 1
        self.position = (self.position + 1) % graph.chunk_size
        return graph.replay()[:rows].clone()

    def reorder(self, order: Tensor) -> bool:
        """Select rows before the next step; return whether the graph can."""
        if not self.graph.reorders or order.numel() > self.graph.rows:
            return False
        self.order = order if self.order is None else self.order.index_select(0, order)
        self.rows = order.numel()
        return True

    def state(self) -> StreamState:
        """Return a copy of the state."""
        state, order = self.graph.state, self._rows_now()
        growing = [LayerCache(cache.attention.growing(self.position)) for cache in state.cache or ()]
        now = state._replace(step=self.step, cache=tuple(growing))
        return with_named_tensors(now, {name: x.index_select(0, order) for name, x in named_tensors(now).items()})

    def _rows_now(self) -> Tensor:
        return torch.arange(self.rows, device=self.graph.order.device) if self.order is None else self.order


def as_state(state: Union[StreamState, GraphStream, None]) -> Optional[StreamState]:
    """Return the state of streams, wherever they are."""
    return state.state() if isinstance(state, GraphStream) else state


def on_graph(
    decoder: Any, device: torch.device, rows: int, state: Union[StreamState, GraphStream, None], reorders: bool = False
) -> Optional[GraphStream]:
    """Return streams whose next step a graph computes; None where none can.

    Args:
        decoder: of a language model.
        device: of its weights.
        rows: the number of the streams.
        state: of the streams; a GraphStream is returned itself unless the weights or settings have changed since.
        reorders: whether their rows will be reordered.
    """
    if not has_graphs(device) or state is None or not decoder.use_graphs or decoder.training:
        return None
    if torch.is_grad_enabled() or torch.is_inference_mode_enabled() or torch.is_autocast_enabled(device.type):
        return None
    if torch.compiler.is_compiling() or is_transformed():
        return None
    if isinstance(state, GraphStream):
        if state.graph.is_current():
            return state
        state = state.state()
    room = 1 << (rows - 1).bit_length()
    for number in itertools.count():  # streams that are continued in turn have a graph each
        graph = decoder.graphs.get_of_all(decoder, (room, reorders, number), lambda: _captured(decoder, room, reorders))
        if graph is None or not are_joinable(state.cache, graph.dtype):
            return None
        if graph.user() is None:
            return GraphStream(decoder, graph, state, rows)
    raise AssertionError("unreachable")


def _captured(decoder: Any, rows: int, reorders: bool) -> Optional[DecodingGraph]:
    if reason_against(decoder) is not None:
        return None
    try:
        graph = DecodingGraph(decoder, rows, reorders)
        if not graph.is_right(decoder):
            raise RuntimeError("its result is not that of an ordinary step")
        return graph
    except RuntimeError as error:
        if not _failures:
            logger.warning(f"decoding without a CUDA graph, more slowly, because its capture failed: {error}")
        _failures.append(str(error))
        return None
