"""Costs of a training that several processes share: the bytes that each process holds and sends.

Collectives are counted as rings, which send least; gloo reduces and distributes in two collectives and sends more.
"""

from typing import Any, List, Mapping, NamedTuple, Sequence, Tuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from fairseq_mega.models.cost import (
    AUTOCAST,
    ROUNDED,
    Precision,
    activations,
    compiled_kernels,
    language_model,
    parameters,
    width_of,
)
from fairseq_mega.models.mega_lm_decoder import LanguageModelDecoder
from fairseq_mega.modules.layer import LayerContext
from fairseq_mega.modules.relay import Relay


class Sharing(NamedTuple):
    """Processes that share a training, by options of fairseq-mega-train."""

    processes: int
    pieces: int = 1  # of a sequence: --chunk-parallel-size
    sharded: bool = False  # --ddp-backend fully_sharded; else fairseq's default
    gathered: bool = False  # --no-reshard-after-forward
    recomputed: bool = False  # --checkpoint-activations

    def options(self) -> List[str]:
        """Return the words of fairseq-mega-train's command line."""
        chosen = {
            "--ddp-backend fully_sharded": self.sharded,
            "--no-reshard-after-forward": self.gathered,
            "--checkpoint-activations": self.recomputed,
            f"--chunk-parallel-size {self.pieces}": self.pieces > 1,
        }
        return [word for option, taken in chosen.items() if taken for word in option.split()]


class Held(NamedTuple):
    """Bytes of a process at the moment when it holds most."""

    state: int  # weights, gradients, the optimiser's tensors, and the copies of autocast
    buffers: int  # gradients in transit, and the gathered weights of a sharded model
    activations: int

    @property
    def total(self) -> int:
        """Sum of all parts."""
        return sum(self)


class Sent(NamedTuple):
    """Bytes that a process sends for an update, without fairseq's log."""

    weights: int  # and gradients, by collectives of all processes
    memory: int  # of layers, to the process of the next piece of a sequence
    gradients: int  # of that memory, to the process of the piece before

    def most(self, pieces: int) -> int:
        """Return the bytes of the process that sends most; with 2 pieces each process has one neighbour."""
        return self.weights + (self.memory + self.gradients if pieces > 2 else max(self.memory, self.gradients))


class Shared:
    """A language model in training whose parts several processes share.

    Args:
        options, symbols, precision: as in :func:`fairseq_mega.models.cost.activations`.

    Raises:
        ValueError: as :func:`fairseq_mega.models.cost.activations`.
    """

    def __init__(self, options: Mapping[str, Any], symbols: int, precision: Precision) -> None:
        self.decoder, self.precision = language_model(options, symbols), precision
        self.parameters = parameters(self.decoder)
        layers = [list(layer.parameters()) for layer in self.decoder.layers]
        within = {id(parameter) for layer in layers for parameter in layer}
        rest = [parameter for parameter in self.decoder.parameters() if id(parameter) not in within]
        self._parts = [[parameter.shape for parameter in part] for part in (rest, *layers)]
        self._activations = [activations(options, symbols, precision, again) for again in (False, True)]
        self._messages = (0, 0)
        if self.decoder.chunk_size > 0:
            models = (language_model({**options, "decoder_layers": n}, symbols, own=True) for n in (1, 2))
            one, two = (_messages(model, precision) for model in models)
            memory, gradients = (first + (len(layers) - 1) * (second - first) for first, second in zip(one, two))
            self._messages = memory, gradients

    def held(self, sharing: Sharing, tokens: int) -> Held:
        """Return the bytes of the process that holds most, with gradients of an earlier batch.

        The state is exact. Buffers of a sharded model are estimated: the weights outside the layers and their
        gradients, and within the layers two layers of weights, one of gradients and one in transit. Activations are
        estimated.

        Args:
            sharing: how the processes share the training.
            tokens: tokens of a pass of this process.
        """
        one = self._activations[sharing.recomputed]
        state, copy, weight = self.precision.state, self.precision.copy, self.precision.weight
        if not sharing.sharded:
            buffers = weight * self.parameters if sharing.processes > 1 else 0
            whole = (state + copy) * self.parameters
            return Held(whole, buffers, round(tokens * max(one)))
        rows = sum(_rows(part, sharing.processes) for part in self._parts)
        rest, *layers = (weight * sharing.processes * _rows(part, sharing.processes) for part in self._parts)
        gathered, most = (sum(layers), 2 * max(layers)) if sharing.gathered else (0, 4 * max(layers))
        # Layers that run again under autocast copy their weights again, one layer after the other.
        copied = max(layers) // weight if sharing.recomputed else self.parameters
        stages = (
            Held(state * rows + copy * self.parameters, rest + gathered, round(tokens * one.output)),
            Held(state * rows + copy * copied, 2 * rest + gathered + most, round(tokens * one.layers)),
        )
        return max(stages, key=lambda held: held.total)

    def sent(self, sharing: Sharing, passes: int, sequences: int) -> Sent:
        """Return the exact bytes of an update for the process that sends most.

        Args:
            sharing: how the processes share the training.
            passes: passes over batches for one update (``--update-freq``).
            sequences: sequences in a pass of the processes that share them.
        """
        count, share = sharing.processes, (sharing.processes - 1) / sharing.processes
        if sharing.sharded:
            rest, *layers = (count * _rows(part, count) for part in self._parts)
            weights = passes * (2 * rest + (2 if sharing.gathered else 3) * sum(layers))
        else:
            weights = 2 * self.parameters
        memory, gradients = (passes * sequences * size if sharing.pieces > 1 else 0 for size in self._messages)
        return Sent(round(share * self.precision.weight * weights), memory, gradients)


def _rows(shapes: Sequence[torch.Size], processes: int) -> int:
    """Return the numbers that the first process holds of tensors sharded by rows, as torch's fully_shard does."""
    return sum(-(-shape[0] // processes) * shape[1:].numel() for shape in shapes)


class _CountedWire:
    """Wire of the middle one of three processes, which counts sent bytes and receives none."""

    first = last = False

    def __init__(self) -> None:
        self.sent = {True: 0, False: 0}  # bytes; the key is True for messages forward

    def send(self, message: Tensor, forward: bool, tag: int) -> None:
        self.sent[forward] += message.nbytes

    def receive(self, message: Tensor, forward: bool, tag: int) -> None:
        pass


def _messages(decoder: LanguageModelDecoder, precision: Precision) -> Tuple[int, int]:
    """Return the bytes of a sequence's memory between two pieces, and of the gradients of that memory."""
    if precision is ROUNDED:
        decoder.to(torch.bfloat16)
    wire = _CountedWire()
    with FakeTensorMode(allow_non_fake_inputs=True), compiled_kernels():
        decoder.to_empty(device="cpu").train()
        kind = torch.bfloat16 if precision is ROUNDED else torch.float32
        x = torch.zeros(1, decoder.chunk_size, width_of(decoder), dtype=kind).requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision is AUTOCAST):
            hidden = decoder.run_layers(x, LayerContext(relay=Relay(wire))).hidden
        hidden.backward(torch.zeros((), dtype=hidden.dtype).expand_as(hidden))
    return wire.sent[True], wire.sent[False]
