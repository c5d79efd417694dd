"""The loop over layers: final norms with statistics, memory without a cache, inner states, recomputation."""

import copy
import gc
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor

from fairseq_mega.modules import trunk
from fairseq_mega.modules.config import MegaLayerConfig
from fairseq_mega.modules.layer import LayerContext, LayerOutput
from fairseq_mega.modules.mega_layer import MegaLayer
from fairseq_mega.modules.megalodon.config import MegalodonLayerConfig
from fairseq_mega.modules.megalodon.layer import MegalodonLayer
from fairseq_mega.modules.packed_linear import pack_linear_maps
from fairseq_mega.modules.single_steps import steps_of
from fairseq_mega.modules.state import StreamState, reorder_state
from fairseq_mega.modules.trunk import Trunk
from fairseq_mega.ops import linear
from fairseq_mega.ops.common import native
from fairseq_mega.ops.common.dispatch import VARIABLE
from fairseq_mega.ops.dropout import draw_seed, drawing_once

SHAPE = {"embed_dim": 8, "hidden_dim": 12, "z_dim": 4, "ema_dim": 3, "ffn_dim": 10, "max_positions": 32}


class Stack(Trunk, nn.Module):
    """A trunk by itself."""

    final_norm: Any

    def __init__(self, final_norm=None, recompute=False, layers=2, **changes):
        super().__init__()
        torch.manual_seed(0)
        config = MegaLayerConfig(**{**SHAPE, **changes})
        self.add_layers([MegaLayer(config) for _ in range(layers)], final_norm, recompute)
        with torch.no_grad():  # away from the near-zero start, where attention hardly matters
            for parameter in self.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
        self.double()

    def forward(self, *args, **options):
        return self.run_layers(*args, **options)


class RunningMean(nn.Module):
    """Subtracts the mean of all steps so far, without padding; its statistics are their number and their sum."""

    keeps_statistics = True

    def forward(self, x, padding_mask, statistics):
        true = torch.ones(x.shape[:2]).to(x) if padding_mask is None else (~padding_mask).to(x)
        count, total = (0.0, 0.0) if statistics is None else (part.unsqueeze(1) for part in statistics)
        count = count + true.unsqueeze(-1).cumsum(1)
        total = total + (true.unsqueeze(-1) * x).cumsum(1)
        return x - total / count.clamp(min=1), (count[:, -1], total[:, -1])


def hidden(batch=3, length=13):
    return torch.randn(batch, length, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def test_statistics_of_the_final_norm_are_carried():
    stack, x = Stack(RunningMean(), chunk_size=4).eval(), hidden()
    mask = torch.zeros(3, 13, dtype=torch.bool)
    mask[1, 10:] = True
    whole = stack(x, LayerContext(mask)).hidden
    outputs, order = [], torch.tensor([2, 1, 0])
    state: Any = None
    for start, end in ((0, 1), (1, 7), (7, 13)):
        out = stack(x[:, start:end], LayerContext(mask[:, start:end], return_state=True), state)
        outputs.append(out.hidden)
        state = out.state
    assert state.step == 13
    torch.testing.assert_close(torch.cat(outputs, dim=1), whole)
    assert torch.equal(whole[mask], torch.zeros_like(whole[mask]))
    count, total = reorder_state(state, order).memory.final_norm
    assert count[:, 0].tolist() == [13, 10, 13] and torch.equal(total, state.memory.final_norm[1][order])


def test_memory_alone_continues_at_the_end_of_a_chunk():
    """It is small, has the same size everywhere, and gradients flow through it."""
    stack, x = Stack(nn.LayerNorm(8), chunk_size=4), hidden()
    whole = stack(x).hidden
    first = stack(x[:, :8], LayerContext(return_state=True)).state
    assert {len(cache.attention.keys) for cache in first.cache} == {0}
    rest = stack(x[:, 8:], state=StreamState(first.step, first.memory)).hidden
    torch.testing.assert_close(rest, whole[:, 8:])
    sizes = {stack(x[:, :end], LayerContext(return_state=True)).state.memory.layers[0].ema.shape for end in (1, 8, 13)}
    assert sizes == {(3, 8, 3)}
    parameters = list(stack.parameters())
    for gradients in zip(*(torch.autograd.grad(out.square().sum(), parameters) for out in (rest, whole[:, 8:]))):
        torch.testing.assert_close(*gradients)


def test_inner_states():
    stack, x = Stack(nn.LayerNorm(8), bidirectional=True).eval(), hidden()
    out = stack(x, inner_states=True)
    assert len(out.inner_states) == 2 and stack(x).inner_states == [] and out.state is None
    torch.testing.assert_close(out.inner_states[0], stack.layers[0](x).hidden)
    torch.testing.assert_close(stack.final_norm(out.inner_states[1]), out.hidden)


def test_weights_are_those_of_the_last_layer():
    stack, x, source = Stack(cross_attention=True).eval(), hidden(), hidden(length=5)
    seen = []
    for layer in stack.layers:
        layer.register_forward_hook(lambda layer, given, out: seen.append(out.cross_weights))
    weights = stack(x, LayerContext(encoder_out=source, need_weights=True)).cross_weights
    assert weights.shape == (3, 13, 5) and seen[0] is None and seen[1] is weights
    assert stack(x, LayerContext(encoder_out=source)).cross_weights is None


@pytest.mark.parametrize(
    "layer",
    [
        lambda: MegaLayer(
            MegaLayerConfig(32, hidden_dim=64, z_dim=32, ffn_dim=64, chunk_size=16, normalize_before=True)
        ),
        lambda: MegalodonLayer(
            MegalodonLayerConfig(32, hidden_dim=64, z_dim=32, ffn_dim=64, chunk_size=16, norm_groups=8, swiglu=True)
        ),
    ],
)
def test_recomputed_layers_leave_nothing_behind(layer):
    """PyTorch's collector sees no cycle through the graph that is made again in the backward pass."""
    stack = Stack(recompute=True, layers=0)
    stack.add_layers([layer() for _ in range(2)], None, True)
    tensors = []
    for _ in range(3):
        stack(torch.randn(2, 64, 32, requires_grad=True)).hidden.square().sum().backward()
        gc.collect()
        tensors.append(sum(type(found) is torch.Tensor for found in gc.get_objects()))
    assert tensors[1] == tensors[2]


def mega_layer(**changes: Any) -> MegaLayer:
    options: Any = {**SHAPE, **changes}
    return MegaLayer(MegaLayerConfig(**options))


STEPPING = [
    lambda: mega_layer(chunk_size=4, dropout=0.1),
    lambda: mega_layer(cross_attention=True),
    lambda: MegalodonLayer(MegalodonLayerConfig(8, hidden_dim=12, z_dim=4, ema_dim=3, ffn_dim=10, norm_groups=2)),
]


def stream(layer):
    """Two layers of float32 in evaluation, and a function that reads further steps, to the hidden states of each."""
    stack, state = Stack(nn.LayerNorm(8), layers=0), None
    stack.add_layers([layer() for _ in range(2)], stack.final_norm)
    stack.float().eval()
    generator = torch.Generator().manual_seed(2)
    context = LayerContext(encoder_out=torch.randn(3, 5, 8, generator=generator), return_state=True)

    def read(steps, dtype=torch.float32, keeps=True):
        nonlocal state
        outputs = []
        with torch.no_grad():
            for _ in range(steps):
                state = state if keeps else copy.deepcopy(state)  # without the values prepared for its next step
                out = stack(torch.randn(3, 1, 8, generator=generator).to(dtype), context, state)
                state = out.state
                outputs.append(out.hidden)
        return torch.cat(outputs, dim=1)

    return stack, read


needs_kernels = pytest.mark.skipif(native.PROBLEM is not None, reason=f"no compiled kernels: {native.PROBLEM}")


@needs_kernels
@pytest.mark.parametrize("layer", STEPPING)
def test_single_steps_are_prepared_once_for_all_layers(layer, monkeypatch):
    """They are prepared anew when a weight or a setting of dropout has changed."""
    stack, read = stream(layer)
    prepared: list = []

    def noted(layers, *args):
        prepared.append(list(layers))
        return steps_of(layers, *args)

    monkeypatch.setattr(trunk, "steps_of", noted)
    read(6)
    assert prepared == [list(stack.layers)]
    with torch.no_grad():
        stack.layers[1].attention.output_proj.weight.mul_(2)
    read(3)
    assert len(prepared) == 2
    stack.layers[0].attention.dropout.retained = True
    read(3)
    assert len(prepared) == 3


MEGALODON: Any = {"hidden_dim": 12, "z_dim": 4, "ema_dim": 3, "ffn_dim": 10, "norm_groups": 2}
JOINED = [
    partial(mega_layer, normalize_before=True, relative_bias="simple"),
    partial(mega_layer, normalize_before=True, relative_bias="rotary", attention_function="laplace"),
    lambda **more: MegalodonLayer(MegalodonLayerConfig(8, **MEGALODON, **more, residual_hops=1, ema_norm="silu")),
    lambda **more: MegalodonLayer(MegalodonLayerConfig(8, **MEGALODON, **more, heads=2, swiglu=True, layer_scale=True)),
]


@needs_kernels
@pytest.mark.parametrize("packed", [None, "int8"])
@pytest.mark.parametrize("chunk_size", [4, -1])
@pytest.mark.parametrize("layer", JOINED)
def test_joined_layers_compute_what_each_does(layer, chunk_size, packed, monkeypatch):
    """To the last bit, over chunks and growing tables of positions."""
    results: list = []
    calls: list = []

    def counted(joined, *args):
        calls.append(None)
        return joined(*args)

    for joins in (True, False):

        def watched(*args, joins=joins):
            steps = steps_of(*args)
            assert steps.joined is not None
            return steps._replace(joined=partial(counted, steps.joined) if joins else None)

        monkeypatch.setattr(trunk, "steps_of", watched)
        torch.manual_seed(4)
        stack, read = stream(partial(layer, chunk_size=chunk_size))
        with torch.no_grad():
            for parameter in stack.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
        if packed is not None:
            pack_linear_maps(stack, packed)
        results.append(read(20))
    assert torch.equal(*results) and len(calls) == 19


def doubled(forward, x, *args):
    return forward(2 * x, *args)


def doubled_norm(norm, x, *args):
    return 2 * super(type(norm), norm).forward(x, *args)


CHANGES = ["weight", "module", "retained dropout", "patch", "patch of a part", "subclass of a norm", "training"]


@needs_kernels
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("layer", STEPPING)
def test_a_stream_notices_what_changes_between_its_steps(layer, change):
    """The steps equal those of a stream that keeps no values, to the last bit."""
    results = []
    for now, keeps in ((change, True), (change, False), (None, True)):
        torch.manual_seed(4)
        stack, read = stream(layer)
        with torch.no_grad():  # away from the near-zero start, where a sub-layer hardly matters
            for parameter in stack.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
        outputs = [read(8, keeps=keeps)]
        second = stack.layers[1]
        torch.manual_seed(5)
        if now == "weight":
            with torch.no_grad():
                second.feed_forward.norm.weight.add_(1)
        elif now == "module":
            second.attention.output_proj = nn.Linear(12, 8)
        elif now == "retained dropout":
            second.feed_forward.dropout.p, second.feed_forward.dropout.retained = 0.5, True
        elif now == "training":
            second.attention.attention_dropout.p = 0.5
            second.attention.train()
        elif now == "subclass of a norm":
            first = stack.layers[0]  # nothing hides its scale
            norm = copy.copy(first.feed_forward.norm)
            norm.__class__ = type("Doubled", (type(norm),), {"forward": doubled_norm})
            first.feed_forward.norm = norm
        elif now == "patch of a part":
            part = second.attention.value_proj
            part.forward = partial(doubled, part.forward)
        elif now == "patch":
            second.attention = copy.copy(second.attention)
            second.attention.forward = partial(doubled, second.attention.forward)
        outputs.append(read(3, keeps=keeps))
        results.append(torch.cat(outputs, dim=1))
    changed, kept_nothing, unchanged = results
    assert torch.equal(changed, kept_nothing)
    assert not torch.allclose(changed[:, 8:], unchanged[:, 8:], atol=1e-2)


@needs_kernels
@pytest.mark.parametrize("layer", STEPPING)
def test_weights_that_are_not_contiguous(layer):
    results = []
    for transposed in (False, True):
        torch.manual_seed(4)
        stack, read = stream(layer)
        if transposed:
            matrix = stack.layers[1].attention.output_proj
            matrix.weight = nn.Parameter(matrix.weight.detach().t().contiguous().t())
        results.append(read(6))
    torch.testing.assert_close(*results)


@needs_kernels
@pytest.mark.parametrize("layer", STEPPING)
def test_hooks_are_called_at_every_step(layer):
    stack, read = stream(layer)
    read(3)
    calls: list = []
    for part in ("attention", "feed_forward"):
        hook = getattr(stack.layers[1], part).register_forward_hook(lambda *_: calls.append(None))
        read(3)
        assert len(calls) == 3
        calls.clear()
        hook.remove()
    handle = nn.modules.module.register_module_forward_pre_hook(lambda *_: calls.append(None))
    read(1)
    handle.remove()
    assert len(calls) > 6


@pytest.mark.parametrize("recompute", [False, True])
def test_a_trunk_on_a_gpu_draws_the_seeds_of_all_layers_at_once(recompute):
    gpu, found = torch.device("meta"), []  # like a GPU, not a CPU

    class Dropping(nn.Module):
        @drawing_once
        def forward(self, x, context, memory, cache):
            found.append([draw_seed(gpu) for _ in range(2)])
            return LayerOutput(x * x)

    class Several(Trunk, nn.Module):
        def __init__(self):
            super().__init__()
            self.add_layers([Dropping(), Dropping(), Dropping()], None, recompute)

    x = torch.ones(2, 3, 4, device=gpu, requires_grad=True)
    Several().run_layers(x).hidden.sum().backward()
    assert len({seed.untyped_storage()._cdata for seeds in found for seed in seeds}) == 1
    places = [seed.storage_offset() for seeds in found for seed in seeds]
    again = places[4:6] + places[2:4] + places[:2]  # the last layer's backward pass begins
    assert len(set(places)) == 6 and places[6:] == (again if recompute else [])
    found.clear()
    Several().eval().run_layers(x)
    assert len({seeds[0].untyped_storage()._cdata for seeds in found}) == 3  # none for layers that may not drop


def gather_while_running(layer):
    """Replace the parameters of maps by others, as sharding does, until the layer runs."""
    own = [(part, dict(part._parameters)) for part in layer.modules() if isinstance(part, nn.Linear)]
    for part, parameters in own:
        part._parameters.update({name: nn.Parameter(TwoTensor(p, p)) for name, p in parameters.items()})

    def gather(*_):
        for part, parameters in own:
            part._parameters.update(parameters)

    layer.register_forward_pre_hook(gather)


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("sharded", [False, True])
def test_a_trunk_copies_the_weights_of_all_layers_at_once(sharded, recompute, monkeypatch):
    """On a GPU under autocast; here on a CPU. The gradients of a layer are copied when its backward pass ends."""
    monkeypatch.setenv(VARIABLE, "linear=reference")
    numbers, copy, x = [], torch._foreach_copy_, hidden().float()
    searched, plain = [], linear._plain

    def search(layer):
        searched.append(layer)
        return plain(layer)

    def counted(to, tensors):
        numbers.append(len(to))
        copy(to, tensors)

    def gradients():
        stack = Stack(recompute=recompute, layers=3).float()
        parameters = [*stack.parameters()]
        if sharded:
            for layer in stack.layers:
                gather_while_running(layer)
        with torch.autocast("cpu", torch.bfloat16):
            out = stack(x).hidden
        forward = list(numbers)
        return torch.autograd.grad(out.square().sum(), parameters), forward

    monkeypatch.setattr(torch, "_foreach_copy_", counted)
    monkeypatch.setattr(linear, "_plain", search)
    want, _ = gradients()
    monkeypatch.setattr(linear, "casts_at_once", lambda x: torch.is_grad_enabled())
    got, forward = gradients()
    assert all(map(torch.equal, got, want))
    assert forward == ([10, 10, 10] if sharded else [30])  # weights and biases of five maps
    # A layer that runs again copies its own, and a layer its gradients.
    assert numbers[len(forward) :] == [10] * (6 if recompute else 3)
    assert len(searched) == 3 * (1 + sharded + recompute)


def test_compiled_layers_leave_copies_to_the_compiler(monkeypatch):
    monkeypatch.setattr(linear, "casts_at_once", lambda x: True)
    monkeypatch.setattr(torch, "_foreach_copy_", None)
    stack = Stack(layers=1).float()
    stack.layers[0].compile(backend="eager", fullgraph=True)
    with torch.autocast("cpu", torch.bfloat16):
        stack(hidden().float())
