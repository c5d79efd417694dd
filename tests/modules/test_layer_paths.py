"""A whole layer on its fast paths: the same training as on the references, and autocast."""

import collections
import functools
from typing import Any, Callable, Counter, Dict, List, Optional, Sequence, Tuple

import pytest
import torch
from torch.nn.utils import parametrize
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils.checkpoint import checkpoint

from fairseq_mega.lab.benchmarks import launches
from fairseq_mega.modules.config import MegaLayerConfig
from fairseq_mega.modules.layer import LayerContext
from fairseq_mega.modules.mega_layer import MegaLayer
from fairseq_mega.modules.megalodon.config import MegalodonLayerConfig
from fairseq_mega.modules.megalodon.layer import MegalodonLayer
from fairseq_mega.ops import activation, attention
from fairseq_mega.ops import linear as maps
from fairseq_mega.ops.common import native
from fairseq_mega.ops.common.dispatch import VARIABLE
from tests.ops import calls
from tests.support import kernels
from tests.support.layers import run

KINDS: Dict[str, Dict[str, Any]] = {
    "chunks": {"chunk_size": 8, "bidirectional": True, "attention_function": "laplace"},
    "causal": {"attention_function": "softmax", "relative_bias": "rotary"},
    "truncated": {"bidirectional": True, "attention_function": "relu2", "truncation": 5},
}


def layer_of(kind, seed=1, **options):
    torch.manual_seed(seed)
    shape: Dict[str, Any] = {
        "embed_dim": 16,
        "hidden_dim": 24,
        "z_dim": 8,
        "ema_dim": 4,
        "ffn_dim": 24,
        "max_positions": 64,
    }
    return MegaLayer(MegaLayerConfig(**{**shape, "normalize_before": True, **KINDS[kind], **options}))


def megalodon(**options):
    return MegalodonLayer(MegalodonLayerConfig(16, 24, 8, 24, ema_dim=4, norm_groups=2, **options))


def losses_of(kind, steps, device):
    """Losses of training the layer to undo a fixed mixing of noise."""
    layer = layer_of(kind).to(device)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(4, 29, 16, generator=generator).to(device)
    mask = torch.zeros(4, 29, dtype=torch.bool, device=device)
    mask[1, 20:] = True
    target = x.roll(1, dims=1) + x.cumsum(1) / 8
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        error = (run(layer, x, padding_mask=mask).hidden - target)[~mask]
        loss = error.square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses, dtype=torch.float64)


class Counted(calls.Watch):
    """Count the calls of each compiled operator."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = collections.Counter()

    def call(self, operator: Any, arguments: Dict[str, Any]) -> Any:
        self.calls[operator._schema.name.split("::")[1]] += 1
        return operator(**arguments)


@pytest.fixture
def references(monkeypatch):
    """Return a function that puts all operators on their references; a call of a kernel fails, then."""

    def choose():
        monkeypatch.setenv(VARIABLE, "reference")
        monkeypatch.setattr(native, "operators", None)

    return choose


@pytest.mark.parametrize("kind", KINDS)
def test_training_is_the_same_on_all_paths(kind, device, references):
    got = losses_of(kind, 40, device)
    references()
    want = losses_of(kind, 40, torch.device("cpu"))
    assert want[-1] < 0.7 * want[0]
    torch.testing.assert_close(got, want, rtol=2e-4, atol=0.0)


def outcome_of(
    layer: torch.nn.Module, x: torch.Tensor, **context: torch.Tensor
) -> Callable[[], Dict[str, torch.Tensor]]:
    """Return a function that computes a layer's output and all gradients."""
    x.requires_grad_()
    for name, parameter in layer.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter)

    def outcome() -> Dict[str, torch.Tensor]:
        out, named = run(layer, x, **context).hidden, {"x": x, **dict(layer.named_parameters())}
        weights = torch.linspace(-1, 1, 16, device=x.device)
        found = torch.autograd.grad((out * weights).sum(), list(named.values()))
        return {"output": out, **dict(zip(named, found))}

    return outcome


@pytest.mark.parametrize("length", [16, 13])
@pytest.mark.parametrize("model", ["mega", "megalodon"])
def test_the_attention_of_a_gpu_multiplies_by_the_gate(model, length, request, monkeypatch):
    """In chunks and a rest; the rows of gates lie apart, as parts of a projection's result."""
    device, gates = kernels.select_triton(request, monkeypatch), []
    layer = layer_of("chunks") if model == "mega" else megalodon(chunk_size=8)
    outcome, attend = outcome_of(layer.to(device), torch.randn(2, length, 16).to(device)), attention.triton_attention

    def recorded(arguments: Any, gate: Optional[torch.Tensor] = None) -> torch.Tensor:
        gates.append(gate is not None and not gate.is_contiguous())
        return attend(arguments, gate)

    monkeypatch.setenv(VARIABLE, "reference")
    want = outcome()
    monkeypatch.setattr(attention, "triton_attention", recorded)
    monkeypatch.setenv(VARIABLE, "reference,attention=triton")
    torch.testing.assert_close(outcome(), want, rtol=2e-4, atol=2e-5)
    assert gates == [True, True][: 1 + length % 8]


@pytest.mark.parametrize(
    ("model", "norms"), [("before", 1), ("after", 2), ("source", 1), ("source after", 2), ("megalodon", 1)]
)
def test_kernels_for_gpus_add_biases_and_norm_sums(model, norms, request, monkeypatch):
    """Biases of linear maps, and residuals before norms in the same kernels as the norms."""
    if model != "megalodon":
        options = {"normalize_before": "after" not in model, "cross_attention": "source" in model, "dropout": 0.0}
        layer: torch.nn.Module = layer_of("causal", **options)
    else:
        layer = megalodon()
    context = {"encoder_out": torch.randn(2, 9, 16)} if "source" in model else {}
    outcome = outcome_of(layer, torch.randn(2, 13, 16), **context)

    def product(x: torch.Tensor, weight: torch.Tensor, bias: Optional[torch.Tensor] = None) -> torch.Tensor:
        biased.append(bias is not None)
        return plain(x, weight, bias)

    biased: List[bool] = []
    plain = torch.nn.functional.linear
    monkeypatch.setenv(VARIABLE, "reference")
    want = outcome()
    kernels.select("simulator", request, monkeypatch)
    monkeypatch.setenv(VARIABLE, "linear=reference")
    monkeypatch.setattr(activation, "adds_bias", lambda x: True)
    monkeypatch.setattr(torch.nn.functional, "linear", product)
    with Counted() as counted:
        torch.testing.assert_close(outcome(), want, rtol=2e-4, atol=2e-5)
    others = 4 * ("source" in model)  # of the attention to the source
    assert biased.count(True) == 1 + others  # of parts for several kernels
    assert counted.calls["gated_residual_norm"] == counted.calls["gated_residual_norm_backward"] == norms


@pytest.mark.parametrize("padded", [False, True])
def test_a_layer_writes_the_next_ones_input_of_products(padded, request, monkeypatch):
    kernels.select("simulator", request, monkeypatch)
    monkeypatch.setenv(VARIABLE, "attention=reference,ema=reference,linear=reference")
    trunk = calls.Layers(*(layer_of("causal", seed, normalize_before=False, dropout=0.0) for seed in (1, 2)))
    x, mask = torch.randn(2, 13, 16, requires_grad=True), torch.arange(13) > torch.tensor([[12], [8]])
    types: List[Any] = []
    for layer in trunk.layers:
        layer.register_forward_pre_hook(lambda _, given: types.append(given[1].products))

    def outcome() -> List[torch.Tensor]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = trunk.run_layers(x, LayerContext(padding_mask=mask if padded else None)).hidden
        return [out, *torch.autograd.grad((out * torch.linspace(-1, 1, 16)).sum(), [x, *trunk.parameters()])]

    found = outcome()
    assert types[0] is None and types.pop().dtype == torch.bfloat16
    trunk.checkpoint_activations = True  # whose checkpoints would keep it
    torch.testing.assert_close(outcome(), found, rtol=2e-2, atol=2e-2)
    monkeypatch.setattr(native, "has_kernel", lambda *call: False)
    for got, want in zip(found, outcome()):
        torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2 * want.abs().max().item())
    assert len(types) > 3 and types == [None] * len(types)


@torch.no_grad()
def test_steps_of_the_references(references):
    layer, x, out = layer_of("causal").eval(), torch.randn(2, 5, 16), None
    whole = layer(x).hidden
    references()
    for t in range(5):
        out = run(layer, x[:, t : t + 1], out, return_state=True)
        torch.testing.assert_close(out.hidden[:, 0], whole[:, t], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [*KINDS, "megalodon"])
def test_bfloat16_flows_between_products_under_autocast(kind, device):
    """No product converts what it is given; the residual stays float32, and so do all gradients."""
    layer = (megalodon() if kind == "megalodon" else layer_of(kind)).to(device)
    products = [module for module in layer.modules() if isinstance(module, torch.nn.Linear)]
    types = []
    for module in products:
        module.register_forward_pre_hook(lambda _, inputs: types.append(inputs[0].dtype))
    x = torch.randn(2, 21, 16, device=device, requires_grad=True)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        out = layer(x).hidden
    assert out.dtype == torch.float32 and len(types) == len(products) == 5
    # The norm before the FFN writes bfloat16, too; MEGALODON's EMA reads the timestep norm's float32.
    assert types == [torch.float32 if kind == "megalodon" else torch.bfloat16] + [torch.bfloat16] * 4
    found = torch.autograd.grad(out.square().sum(), [x, *layer.parameters()])
    assert all(gradient.dtype == torch.float32 for gradient in found)


def halve(module: Any, inputs: Any) -> None:
    module.weight.data.mul_(0.5)


# Of a map of the attention, with the numbers of parameters copied and of gradients: five maps have weight and bias.
CHANGES: Dict[str, Tuple[Callable[[Any], Any], int, int]] = {
    "none": (lambda map: None, 10, 10),
    "frozen": (lambda map: map.requires_grad_(False), 10, 8),
    "computed": (lambda map: parametrize.register_parametrization(map, "weight", torch.nn.Tanh()), 9, 9),
    "distributed": (lambda map: setattr(map, "weight", torch.nn.Parameter(TwoTensor(map.weight, map.weight))), 9, 9),
    "hooked": (lambda map: map.register_forward_pre_hook(halve), 8, 8),
    "wrapped": (lambda map: setattr(map, "forward", functools.partial(maps.linear_map, map)), 8, 8),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("checkpointed", [False, True])
def test_weights_are_copied_at_once_with_the_bits_of_autocast(change, checkpointed, monkeypatch):
    """On a GPU; here on a CPU, whose PyTorch copies one after the other."""
    monkeypatch.setenv(VARIABLE, "linear=reference")
    wrap, copied, back = CHANGES[change]
    numbers: List[int] = []
    copy = torch._foreach_copy_

    def counted(to: List[torch.Tensor], tensors: Sequence[torch.Tensor]) -> None:
        numbers.append(len(to))
        copy(to, [*tensors])

    monkeypatch.setattr(torch, "_foreach_copy_", counted)
    x = torch.randn(2, 29, 16)

    def outcome() -> List[Any]:
        layer = layer_of("chunks")
        wrap(layer.attention.value_proj)
        trained = [parameter for parameter in layer.parameters() if parameter.requires_grad]
        with torch.autocast("cpu", torch.bfloat16):
            y = (checkpoint(layer, x, use_reentrant=False) if checkpointed else layer(x)).hidden
        return [y, *torch.autograd.grad(y.square().sum(), trained)]

    want = outcome()
    assert numbers == []
    monkeypatch.setattr(maps, "casts_at_once", lambda x: torch.is_grad_enabled())
    got = outcome()
    assert all(a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(got, want, strict=True))
    assert numbers == ([copied, copied, back] if checkpointed else [copied, back])


def test_gradients_of_gradients_of_copied_weights():
    weight = torch.randn(3, 4, requires_grad=True)
    second: List[torch.Tensor] = []
    for copy in (maps._Copied.apply([weight.detach().bfloat16()], weight)[0], weight.to(torch.bfloat16)):
        (first,) = torch.autograd.grad(copy.pow(3).sum(), weight, create_graph=True)
        second += torch.autograd.grad(first.square().sum(), weight)
    assert torch.equal(*second) and second[0].any()


def test_layers_without_autocast_without_gradients_and_on_a_cpu_leave_their_weights_alone():
    x = launches.OnGpu(torch.empty(2, 3, device="meta"))
    with launches.autocast("autocast"):
        assert maps.casts_at_once(x) and not maps.casts_at_once(torch.empty(2, 3))
        with torch.no_grad():
            assert not maps.casts_at_once(x)  # of a whole evaluation under autocast, which keeps its copies
        with torch.autograd.forward_ad.dual_level():
            assert not maps.casts_at_once(x)
    assert not maps.casts_at_once(x)


def test_a_compiled_layer_leaves_copies_to_the_compiler(monkeypatch):
    monkeypatch.setattr(maps, "casts_at_once", None)
    layer, x = layer_of("causal"), torch.randn(2, 13, 16)
    with torch.autocast("cpu", torch.bfloat16):
        torch.compile(layer, fullgraph=True, backend="eager")(x)
