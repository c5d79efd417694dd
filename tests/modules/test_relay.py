"""A sequence cut into pieces, each with a model of its own: hidden states and gradients are those of the whole."""

import copy
import queue
import threading
from typing import Any, Callable, Dict, List, Tuple

import pytest
import torch
from torch import Tensor

from fairseq_mega.modules.layer import LayerContext
from fairseq_mega.modules.relay import Form, Relay, pack, tensors_of, unpack, with_tensors
from fairseq_mega.modules.state import LayerMemory
from fairseq_mega.ops.common import native
from fairseq_mega.ops.common.dispatch import VARIABLE
from fairseq_mega.ops.timestep_norm import TimestepNormState, fresh_statistics
from fairseq_mega.tasks.chunk_parallel import bounds
from tests.support import tiny_lm, tiny_megalodon
from tests.support.numerics import assert_close

CHUNK = 5
MODELS: Dict[str, Any] = {
    "mega": (tiny_lm.build, {}),
    "mega, simple bias": (tiny_lm.build, {"rel_pos_bias": "simple"}),
    "mega, post-norm": (tiny_lm.build, {"normalize_before": False, "no_affine_final_norm": False}),
    "mega without average": (tiny_lm.build, {"decoder_n_dim": 0}),
    "megalodon": (tiny_megalodon.build, {}),
}


PATIENCE = 20.0  # seconds, for a piece that failed and sends nothing


class QueueWire:
    """One end of the queues between the pieces of a sequence."""

    def __init__(self, piece: int, pieces: int, queues: Dict[Tuple[int, bool, int], Any], lock: Any) -> None:
        self.first, self.last = piece == 0, piece == pieces - 1
        self.piece, self.queues, self.lock = piece, queues, lock
        self.log: List[Tuple[str, bool, int]] = []

    def _queue(self, sender: int, forward: bool, tag: int) -> Any:
        with self.lock:
            return self.queues.setdefault((sender, forward, tag), queue.Queue())

    def send(self, message: Tensor, forward: bool, tag: int) -> None:
        self.log.append(("send", forward, tag))
        self._queue(self.piece, forward, tag).put(message.clone())

    def receive(self, message: Tensor, forward: bool, tag: int) -> None:
        self.log.append(("receive", forward, tag))
        message.copy_(self._queue(self.piece + (-1 if forward else 1), forward, tag).get(timeout=PATIENCE))


def run_pieces(work: Callable[[int, Relay], Any], pieces: int) -> Tuple[List[Any], List[QueueWire]]:
    """Call ``work(piece, relay)`` once for each piece, all at the same time; returns the results and the wires."""
    queues: Dict[Tuple[int, bool, int], Any] = {}
    lock = threading.Lock()
    wires = [QueueWire(piece, pieces, queues, lock) for piece in range(pieces)]
    results: List[Any] = [None] * pieces
    errors: List[BaseException] = []

    def run(piece: int) -> None:
        try:
            results[piece] = work(piece, Relay(wires[piece]))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(piece,)) for piece in range(pieces)]
    threads_of_torch = torch.get_num_threads()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torch.get_num_threads() == threads_of_torch
    if errors:
        raise errors[0]
    return results, wires


def build(name, **options):
    function, own = MODELS[name]
    model = function(dropout=0.0, **own, **options).double().train()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():  # away from the start, where the attention hardly matters
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, dtype=torch.float64, generator=generator))
    return model


def text(batch, length, padding=0):
    tokens = tiny_lm.tokens(batch, length)
    if padding:
        tokens[0, -padding:] = 1
    return tokens


def weights(batch, length):
    return torch.randn(batch, length, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(7))


def loss_of(model, tokens, weight, **options):
    keep = tokens.ne(1).unsqueeze(-1)
    return (model(tokens, **options)[0] * weight * keep).sum()


def gradients(model):
    return {name: parameter.grad for name, parameter in model.named_parameters() if parameter.requires_grad}


def compare(name, tokens, pieces, **options):
    whole = build(name, **options)
    weight = weights(*tokens.shape)
    expected = loss_of(whole, tokens, weight)
    expected.backward()
    spans = bounds(tokens.size(1), CHUNK, pieces)
    models = [build(name, **options) for _ in spans]

    def work(piece, relay):
        first, end = spans[piece]
        loss = loss_of(models[piece], tokens[:, first:end], weight[:, first:end], relay=relay)
        loss.backward()
        return loss.detach()

    losses, wires = run_pieces(work, pieces)
    assert_close("loss", sum(losses), expected.detach())
    for parameter, gradient in gradients(whole).items():
        total = sum(gradients(model)[parameter] for model in models)
        assert_close(parameter, total, gradient)
    return wires


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("pieces, length", [(2, 20), (4, 21), (3, 28)])
def test_gradients_are_those_of_the_whole(name, pieces, length):
    compare(name, text(2, length), pieces)


@pytest.mark.parametrize("name", ["mega", "megalodon"])
def test_with_padding_and_pieces_of_nothing_else(name):
    tokens = text(3, 20, padding=13)
    tokens[1, 3:12] = tokens[2, :2] = 1  # inside, across two borders, and on the left
    compare(name, tokens, 4)


@pytest.mark.parametrize("name", ["mega", "megalodon"])
def test_recomputed_layers_hand_nothing_on_twice(name):
    plain, recomputed = (compare(name, text(2, 20), 2, checkpoint_activations=again) for again in (False, True))
    assert [wire.log for wire in plain] == [wire.log for wire in recomputed]


@pytest.mark.skipif(native.PROBLEM is not None, reason=f"no compiled kernels: {native.PROBLEM}")
@pytest.mark.parametrize("name", ["mega", "megalodon"])
def test_layers_are_recomputed_with_compiled_kernels(name, monkeypatch):
    """Whose results are not saved where they can be computed again, unless they went through the relay."""
    monkeypatch.setenv(VARIABLE, "native")
    tokens, spans = text(2, 20), bounds(20, CHUNK, 2)
    models = [build(name, checkpoint_activations=again).float() for again in (False, True)]

    def work(piece, relay):
        first, end = spans[piece]
        loss_of(copies[piece], tokens[:, first:end], weights(2, end - first).float(), relay=relay).backward()

    found = []
    for model in models:
        copies = [model, copy.deepcopy(model)]
        run_pieces(work, 2)
        found.append([gradients(one) for one in copies])
    for plain, recomputed in zip(*found):
        for parameter, gradient in plain.items():
            torch.testing.assert_close(recomputed[parameter], gradient, rtol=1e-5, atol=1e-5, msg=parameter)


@pytest.mark.parametrize("name, count", [("mega", 2), ("mega without average", 0), ("megalodon", 3)])
def test_one_message_a_layer_and_its_gradient_in_reverse(name, count):
    first, last = compare(name, text(1, 10), 2)
    tags = range(count)
    assert first.log == [("send", True, tag) for tag in tags] + [("receive", False, tag) for tag in reversed(tags)]
    assert last.log == [("receive", True, tag) for tag in tags] + [("send", False, tag) for tag in reversed(tags)]


@pytest.mark.parametrize("name", ["mega", "megalodon"])
def test_memory_leaves_before_the_attention_and_its_gradient_is_waited_for_after_it(name):
    """So that attention, forward and backward, overlaps with what the neighbour does."""
    order: Dict[int, List[Any]] = {0: [], 1: []}

    def work(piece, relay):
        model = build(name, decoder_layers=1)
        attention = model.decoder.layers[0].attention
        relay._wire.log = order[piece]
        attention.output_proj.register_forward_hook(lambda *args: order[piece].append("attention"))
        attention.gate_proj.register_full_backward_hook(lambda *args: order[piece].append("attention's gradient"))
        tokens = text(1, 20)[:, 10 * piece : 10 * piece + 10]
        loss_of(model, tokens, weights(*tokens.shape), relay=relay).backward()

    run_pieces(work, 2)
    of_final_norm = [("send", True, 1), ("receive", True, 1), ("send", False, 1), ("receive", False, 1)]
    first, last = ([event for event in events if event not in of_final_norm] for events in order.values())
    assert first == [("send", True, 0), "attention", "attention's gradient", ("receive", False, 0)]
    assert last == [("receive", True, 0), "attention", "attention's gradient", ("send", False, 0)]


def test_the_first_piece_goes_on_from_the_memory_that_it_is_given():
    model = build("megalodon").eval()
    tokens = text(2, 25)
    _, state = model.decoder.advance(tokens[:, :5])
    carried = state._replace(cache=None)

    def work(piece, relay):
        first, end = ((5, 15), (15, 25))[piece]
        with torch.no_grad():
            return model.decoder.run(tokens[:, first:end], LayerContext(relay=relay), None if piece else carried).hidden

    with torch.no_grad():
        whole = model.decoder.run(tokens).hidden
    pieces, _ = run_pieces(work, 2)
    assert_close("hidden", torch.cat(pieces, dim=1), whole[:, 5:])


def test_statistics_cross_in_float64_and_so_does_their_gradient():
    mean, variance, weight = torch.rand(3, 3, 1, dtype=torch.float64)
    mean.requires_grad_()

    def work(piece, relay):
        if piece == 0:
            x = torch.zeros(1, requires_grad=True)
            relay.send("norm", x, TimestepNormState(torch.ones(3).long(), mean, variance)).sum().backward()
            return mean.grad
        arrived = relay.receive("norm", None, fresh_statistics(torch.zeros(3, 1, 2), groups=1))
        (arrived.mean * weight).sum().backward()
        return arrived.mean

    (gradient, arrived), _ = run_pieces(work, 2)
    assert torch.equal(arrived, mean) and torch.equal(gradient, weight)


def test_a_message_keeps_every_bit():
    statistics = TimestepNormState(torch.tensor([2**40 + 1, 3, 0]), *torch.rand(2, 3, 1, dtype=torch.float64))
    memory = LayerMemory(torch.randn(3, 2, 2, dtype=torch.complex64).conj(), statistics)
    parts = tensors_of(memory)
    forms = [Form.of(part) for part in parts]
    again = with_tensors(memory, unpack(pack(parts), forms))
    assert isinstance(again, LayerMemory) and isinstance(again.norm, TimestepNormState)
    assert all(torch.equal(one, other) for one, other in zip(tensors_of(again), parts))
    assert with_tensors(LayerMemory(torch.ones(1)), [torch.zeros(1)]).norm is None
