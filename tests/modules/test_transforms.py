"""Whole layers under torch.func, forward-mode derivatives and the compiler, where the compiled kernels have no part."""

from typing import Any, Dict

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.autograd import forward_ad
from torch.func import functional_call, grad, jvp, vmap

from fairseq_mega.modules.config import MegaLayerConfig
from fairseq_mega.modules.dropout import Dropout
from fairseq_mega.modules.layer import LayerContext
from fairseq_mega.modules.mega_layer import MegaLayer
from fairseq_mega.modules.megalodon.config import MegalodonLayerConfig
from fairseq_mega.modules.megalodon.layer import MegalodonLayer
from fairseq_mega.modules.state import named_tensors
from fairseq_mega.ops.common import native
from tests.support.layers import run

WIDTH, LENGTH = 64, 64
SHAPE: Dict[str, Any] = {"embed_dim": WIDTH, "hidden_dim": 128, "z_dim": 32, "chunk_size": 16, "ffn_dim": 64}
LAYERS: Dict[str, Any] = {
    "mega": lambda: MegaLayer(MegaLayerConfig(**SHAPE, relative_bias="rotary")),
    "mega laplace": lambda: MegaLayer(MegaLayerConfig(**SHAPE, attention_function="laplace", bidirectional=True)),
    "megalodon": lambda: MegalodonLayer(MegalodonLayerConfig(**SHAPE, norm_groups=4, heads=2)),
}
FULL: Any = MegaLayerConfig(**{**SHAPE, "chunk_size": -1}, max_positions=192)  # with a bias for each distance


def layer_of(kind: str) -> Any:
    torch.manual_seed(1)
    layer = LAYERS[kind]()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return layer


def hidden(seed: int = 2, batch: int = 2, length: int = LENGTH) -> Tensor:
    return torch.randn(batch, length, WIDTH, generator=torch.Generator().manual_seed(seed))


def slope(layer: nn.Module, x: Tensor, change: Tensor) -> Tensor:
    """The derivative of a layer in one direction, by the double of its gradients in float64 and on its references."""
    layer.double()
    probe = torch.zeros_like(x, dtype=torch.float64).requires_grad_()
    z = x.double().requires_grad_()
    (pulled,) = torch.autograd.grad(layer(z).hidden, z, probe, create_graph=True)
    (found,) = torch.autograd.grad(pulled, probe, change.double())
    layer.float()
    return found


def assert_near(got: Tensor, want: Tensor, tolerance: float = 2e-4) -> None:
    assert want.abs().max() > 1e-3
    torch.testing.assert_close(got.double(), want.double(), rtol=0, atol=tolerance * want.abs().max().item())


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("kind", LAYERS)
def test_derivatives_in_one_direction(kind: str, training: bool, frozen: bool, monkeypatch: Any) -> None:
    layer, x, change = layer_of(kind).train(training), hidden(), hidden(seed=3)
    with monkeypatch.context() as patch:
        patch.setenv("FAIRSEQ_MEGA_PATHS", "reference")
        want = slope(layer, x, change)
    layer.requires_grad_(not frozen)
    for mode in (torch.enable_grad, torch.no_grad):
        with mode():
            assert_near(jvp(lambda z: layer(z).hidden, (x,), (change,))[1], want)
            with forward_ad.dual_level():
                assert_near(forward_ad.unpack_dual(layer(forward_ad.make_dual(x, change)).hidden).tangent, want)


@pytest.mark.parametrize("kind", LAYERS)
def test_gradients_of_samples(kind: str) -> None:
    layer, x = layer_of(kind), hidden()
    parameters = {name: parameter.detach() for name, parameter in layer.named_parameters()}

    def loss(given: Dict[str, Tensor], one: Tensor) -> Tensor:
        return functional_call(layer, given, (one.unsqueeze(0),)).hidden.square().sum()

    found = vmap(grad(loss), (None, 0))(parameters, x)
    for row, one in enumerate(x):
        layer.zero_grad()
        layer(one.unsqueeze(0)).hidden.square().sum().backward()
        for name, parameter in layer.named_parameters():
            assert_near(found[name][row], parameter.grad)


@pytest.mark.parametrize("kind", ["mega", "megalodon"])
def test_single_steps_of_a_stream_keep_tangents(kind: str) -> None:
    """Values that a stream has kept from steps without tangents belong to other parameters."""
    layer, x = layer_of(kind).eval(), hidden()[:, :6]
    parameters = {name: parameter.detach() for name, parameter in layer.named_parameters()}
    changes = {name: 0.1 * torch.ones_like(parameter) for name, parameter in parameters.items()}

    def whole(given: Dict[str, Tensor]) -> Tensor:
        return functional_call(layer, given, (x,)).hidden[:, 3:]

    want = jvp(whole, (parameters,), (changes,))[1]
    with torch.no_grad(), forward_ad.dual_level():
        dual = {name: forward_ad.make_dual(parameters[name], changes[name]) for name in parameters}
        out: Any = None
        tangents = []
        for step in x.split(1, dim=1):
            context = LayerContext(return_state=True)
            past = (None, None) if out is None else (out.memory, out.cache)
            run(layer, step, out, return_state=True)  # keeps values of the parameters in the stream's state
            out = functional_call(layer, dual, (step, context, *past))
            tangents.append(forward_ad.unpack_dual(out.hidden).tangent)
        assert_near(torch.cat(tangents[3:], dim=1), want)


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("paths", ["auto", "native,attention=native_blocks"])
def test_compiles_into_one_graph(kind: str, backend: str, paths: str, monkeypatch: Any) -> None:
    """Padding too, whose mask the graph cannot look at; dropout draws anew at every call of the graph."""
    if "native" in paths and native.PROBLEM is not None:
        pytest.skip(f"no compiled kernels: {native.PROBLEM}")
    monkeypatch.setenv("FAIRSEQ_MEGA_PATHS", paths)
    layer, x, mask = layer_of(kind), hidden().requires_grad_(), torch.zeros(2, LENGTH, dtype=torch.bool)
    mask[0, 3:5] = mask[1, :2] = True

    def outputs(given: Any) -> Dict[str, Tensor]:
        out = given(x, LayerContext(padding_mask=mask, return_state=kind != "mega laplace"))  # causal layers only
        return {**named_tensors(out), "hidden": out.hidden.masked_fill(mask.unsqueeze(-1), 0.0)}

    torch._dynamo.reset()
    compiled, inputs = torch.compile(layer, fullgraph=True, backend=backend), [x, *layer.parameters()]
    got, want = outputs(compiled), outputs(layer)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    loss = lambda out: sum(tensor.abs().square().sum() for tensor in out.values() if tensor.requires_grad)
    for one, other in zip(*(torch.autograd.grad(loss(out), inputs) for out in (got, want))):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3 * other.abs().max().item())
    for part in layer.modules():
        if isinstance(part, Dropout):
            part.p = 0.5
    assert not torch.equal(*(outputs(compiled)["hidden"] for _ in range(2)))


@pytest.mark.skipif(native.PROBLEM is not None, reason=f"no compiled kernels: {native.PROBLEM}")  # FFTs have lengths
@pytest.mark.parametrize("kind", ["mega", "megalodon", "full"])
def test_few_graphs_serve_all_lengths(kind: str, monkeypatch: Any) -> None:
    monkeypatch.setitem(LAYERS, "full", lambda: MegaLayer(FULL))
    layer, graphs = layer_of(kind), CompileCounterWithBackend("eager")
    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, backend=graphs, dynamic=True)
    for length in (64, 128, 32, 160, 48):  # whole chunks
        x = hidden(batch=2, length=length)
        torch.testing.assert_close(compiled(x).hidden, layer(x).hidden, rtol=1e-4, atol=1e-5)
    assert graphs.frame_count <= 2


@pytest.mark.parametrize("kind", ["mega", "megalodon"])
def test_a_compiled_layer_loses_no_tangent(kind: str) -> None:
    """The graph of a call without tangents would lose them."""
    layer, x, change = layer_of(kind), hidden(), hidden(seed=3)
    want = jvp(lambda z: layer(z).hidden, (x,), (change,))[1]
    torch._dynamo.reset()
    compiled = torch.compile(layer, backend="eager")
    with torch.no_grad():
        compiled(x)
        with forward_ad.dual_level():
            got = forward_ad.unpack_dual(compiled(forward_ad.make_dual(x, change)).hidden).tangent
    assert_near(got, want)
