"""The loop over layers that every model shares."""

from typing import Any, Callable, Iterable, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from fairseq_mega.ops.decoding import step_functions
from fairseq_mega.ops.dropout import draw_seeds
from fairseq_mega.ops.linear import casting_once

from .layer import PLAIN, LayerContext, LayerOutput
from .padding import zero_padding
from .parameter_cache import ParameterCache
from .single_steps import Steps, accepts_steps, are_joinable, steps_of
from .state import LayerCache, LayerMemory, StreamState, TrunkMemory


class TrunkOutput(NamedTuple):
    """Result of a trunk."""

    hidden: Tensor  # (B, L, D), zero where padded
    state: Optional[StreamState]
    cross_weights: Optional[Tensor]  # (B, L, S), of the last layer
    inner_states: List[Tensor]  # each layer's output (B, L, D), on request


class Trunk:
    """Loop over ``layers`` and ``final_norm``, attributes of the :class:`torch.nn.Module` that inherits from it.

    A final norm that keeps statistics of a stream has an attribute ``keeps_statistics = True``. It is called as
    ``norm(x, padding_mask, statistics)``, with the documents of the rows as a fourth argument if there are several. It
    returns its output and the new statistics, batch first; the statistics before the first step may be None. For a
    relay it has a method ``fresh_statistics(x)``, which returns the statistics before the first step.
    """

    layers: nn.ModuleList
    final_norm: Optional[nn.Module]
    checkpoint_activations: bool
    training: bool

    def add_layers(
        self, layers: Iterable[nn.Module], final_norm: Optional[nn.Module], checkpoint_activations: bool = False
    ) -> None:
        """Register the parts; the owner's constructor calls it once, after that of :class:`torch.nn.Module`.

        Args:
            layers: each follows :class:`fairseq_mega.modules.layer.Layer`.
            final_norm: of pre-norm models, else None.
            checkpoint_activations: recompute each layer in the backward pass.
        """
        self.layers = nn.ModuleList(layers)
        self.final_norm = final_norm
        self.checkpoint_activations = checkpoint_activations

    @casting_once
    def run_layers(
        self,
        x: Tensor,
        context: LayerContext = PLAIN,
        state: Optional[StreamState] = None,
        inner_states: bool = False,
    ) -> TrunkOutput:
        """Apply all layers and the final norm.

        Args:
            x: (B, L, D), the steps after ``state``.
            context: for every layer; only the last layer returns weights.
            state: of the steps before, None at the beginning of the streams. Without its cache x begins a chunk.
            inner_states: also return each layer's output.
        """
        if context.return_state and context.steps is None:
            context = context._replace(steps=step_functions(x))  # looked up once for all layers
        steps, prepared = self._steps_for(x, context, state)
        layers: Sequence[Callable[..., LayerOutput]] = steps.layers
        recompute = self.checkpoint_activations and self.training and torch.is_grad_enabled()
        unweighted = context._replace(need_weights=False) if context.need_weights else context
        seeds = draw_seeds(x.device, len(layers)) if self.training else None
        new_memory: List[Optional[LayerMemory]] = []
        new_cache: List[Optional[LayerCache]] = []
        inner: List[Tensor] = []
        weights: Optional[Tensor] = None
        products: Optional[Tensor] = None
        if state is not None and steps.joined is not None and not inner_states and are_joinable(state.cache, x.dtype):
            hidden, memories, caches = steps.joined(x[:, 0], state.memory.layers, state.cache)  # type: ignore[arg-type]
            x, new_memory, new_cache, layers = hidden.unsqueeze(1), [*memories], [*caches], ()
        for index, layer in enumerate(layers):
            own = context if index + 1 == len(layers) else unweighted
            if seeds is not None:
                own = own._replace(seeds=seeds[index])
            if products is not None:
                own = own._replace(products=products)
            arguments = (
                x,
                own,
                None if state is None else state.memory.layers[index],
                None if state is None or state.cache is None else state.cache[index],
            )
            out = checkpoint(layer, *arguments, use_reentrant=False) if recompute else layer(*arguments)
            x, weights = out.hidden, out.cross_weights
            products = None if recompute else out.products  # a checkpoint keeps its inputs
            new_memory.append(out.memory)
            new_cache.append(out.cache)
            if inner_states:
                inner.append(x)
        x, statistics = self._normalize(x, context, None if state is None else state.memory.final_norm)
        new_state = None
        if context.return_state:
            read = x.size(1) + (0 if state is None else state.step)
            memory = TrunkMemory(tuple(new_memory), statistics)
            new_state = StreamState(read, memory, tuple(new_cache), prepared=prepared)
        return TrunkOutput(zero_padding(x, context.padding_mask), new_state, weights, inner)

    def _steps_for(
        self, x: Tensor, context: LayerContext, state: Optional[StreamState]
    ) -> Tuple[Steps, Optional[ParameterCache]]:
        """Return the layers, or functions for a single step, and the values prepared for the next step."""
        layers: Sequence[Any] = self.layers  # type: ignore[assignment]  # a ModuleList is a sequence in all but name
        functions = context.steps
        if functions is None or self.training or state is None or not accepts_steps(context):
            return Steps(layers), None
        prepared = state.prepared or ParameterCache()
        key = functions, x.dtype
        return prepared.get_of_all(self.layers, key, lambda: steps_of(layers, *key)), prepared

    def _normalize(self, x: Tensor, context: LayerContext, statistics: Any) -> Tuple[Tensor, Any]:
        """Return the output of the final norm, and its statistics if it keeps statistics."""
        if self.final_norm is None:
            return x, None
        norm: Any = self.final_norm
        if not getattr(norm, "keeps_statistics", False):
            return norm(x), None
        relay = context.relay
        if relay is not None:
            statistics = relay.receive(norm, statistics, norm.fresh_statistics(x))
        documents = () if context.documents is None else (context.documents,)
        x, statistics = norm(x, context.padding_mask, statistics, *documents)
        return x if relay is None else relay.send(norm, x, statistics), statistics
