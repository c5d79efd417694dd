"""Decoding by the functions of single steps against whole sub-layers in float64: outputs, states, forks, padding."""

import itertools
from typing import Any, Dict

import pytest
import torch

from fairseq_mega.modules.config import MegaLayerConfig
from fairseq_mega.modules.feed_forward import NormalizedFeedForward
from fairseq_mega.modules.gated_attention import GatedAttention
from fairseq_mega.modules.mega_layer import MegaLayer
from fairseq_mega.modules.megalodon.attention import NormalizedGatedAttention
from fairseq_mega.modules.megalodon.config import MegalodonLayerConfig
from fairseq_mega.modules.megalodon.feed_forward import FeedForward
from fairseq_mega.modules.megalodon.layer import MegalodonLayer
from fairseq_mega.ops.common import native
from fairseq_mega.ops.common.dispatch import VARIABLE
from fairseq_mega.ops.decoding import complex_step_coefficients
from fairseq_mega.ops.decoding.reference import complex_ema_step
from fairseq_mega.ops.ema import EMACoefficients
from fairseq_mega.ops.packed_linear import MOST_ROWS
from tests.support.layers import run
from tests.support.numerics import assert_close

pytestmark = pytest.mark.skipif(native.PROBLEM is not None, reason=f"compiled kernels: {native.PROBLEM}")

SHAPES: Dict[str, Dict[str, Any]] = {
    "odd": {"embed_dim": 11, "hidden_dim": 13, "z_dim": 6, "ema_dim": 3},
    "vectors": {"embed_dim": 16, "hidden_dim": 80, "z_dim": 24, "ema_dim": 16},
    "one dimension": {"embed_dim": 5, "hidden_dim": 70, "z_dim": 2, "ema_dim": 1},
}
LARGE: Dict[str, Any] = {"embed_dim": 256, "hidden_dim": 256, "z_dim": 32, "ema_dim": 16}
ODD: Dict[str, Any] = {"embed_dim": 12, "hidden_dim": 13, "z_dim": 6, "ema_dim": 3, "ffn_dim": 21, "norm_groups": 2}
MEGALODON: Dict[str, Dict[str, Any]] = {
    "one head": {},
    "two heads": {"embed_dim": 16, "hidden_dim": 80, "z_dim": 24, "ema_dim": 16, "heads": 2},
    "without scales": {"norm_affine": False},
    "silu": {"ema_norm": "silu"},
}


@torch.no_grad()
def moved(module, seed=3):
    """A module for evaluation, away from the near-zero start, where attention hardly matters."""
    torch.manual_seed(seed)
    for parameter in module.parameters():
        parameter.add_(0.3 * torch.randn_like(parameter))
    return module.eval()


def attention(shape="odd", **options):
    torch.manual_seed(3)
    return moved(GatedAttention(MegaLayerConfig(**{**SHAPES.get(shape, LARGE), "max_positions": 128, **options})))


def megalodon_config(**changes):
    return MegalodonLayerConfig(**{**ODD, **changes})


def hidden(batch, length, width, seed=1):
    return torch.randn(batch, length, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def stream(built, x, pieces, out=None):
    outputs, start = [], 0
    for size in pieces:
        out = run(built, x[:, start : start + size], out, return_state=True)
        outputs.append(out.hidden)
        start += size
    assert start == x.size(1)
    return torch.cat(outputs, dim=1), out


@pytest.fixture
def path(monkeypatch):
    return lambda name: monkeypatch.setenv(VARIABLE, f"decoding={name}")


def compare(built, x, path, pieces=([1] * 21, [5, 1, 1, 7, 1, 1, 1, 4])):
    """Steps and pieces on both paths against the whole in float64; steps of the reference say what is allowed."""
    results = {}
    path("reference")
    for dtype, parts in ((torch.float64, [x.size(1)]), (torch.float32, [1] * x.size(1))):
        results[dtype] = tensors_of(*stream(built.to(dtype), x.to(dtype), parts))
    for name, some in itertools.product(("native", "reference"), pieces):
        path(name)
        for part, got in tensors_of(*stream(built.float(), x.float(), some)).items():
            assert_close(f"{part} of {name}, {some}", got, results[torch.float64][part], results[torch.float32][part])


def tensors_of(hidden, last):
    """The output and the state after it, by name."""
    memory, cache = last.memory, last.cache
    ema = torch.view_as_real(memory.ema) if memory.ema.is_complex() else memory.ema
    found = {"output": hidden, "state of the EMA": ema, "keys": cache.keys.steps, "values": cache.values.steps}
    if memory.norm is not None:
        found.update(mean=memory.norm.mean.to(hidden.dtype), variance=memory.norm.variance.to(hidden.dtype))
    return found


@pytest.mark.parametrize("function", ["softmax", "relu2", "laplace"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("chunk_size", [-1, 1, 4, 21])
@pytest.mark.parametrize("prenorm, norm", [(False, "layernorm"), (True, "layernorm"), (True, "rmsnorm")])
@pytest.mark.parametrize("rows", [1, 3, MOST_ROWS + 1])  # of many rows the linear maps are PyTorch's
@pytest.mark.usefixtures("cpu_level")
def test_steps_equal_the_whole(function, shape, chunk_size, prenorm, norm, rows, path):
    options = {"attention_function": function, "chunk_size": chunk_size, "normalize_before": prenorm, "norm": norm}
    built = attention(shape, relative_bias="rotary" if chunk_size == 4 else "simple", **options)
    compare(built, hidden(rows, 21, built.widths[0]), path)


@pytest.mark.parametrize("rows", [1, 3, MOST_ROWS + 1])
@pytest.mark.parametrize("chunk_size", [-1, 4])
@pytest.mark.parametrize("shape", MEGALODON)
@pytest.mark.usefixtures("cpu_level")
def test_steps_of_megalodon_equal_the_whole(shape, chunk_size, rows, path):
    torch.manual_seed(3)
    built = moved(NormalizedGatedAttention(megalodon_config(**MEGALODON[shape], chunk_size=chunk_size)))
    compare(built, hidden(rows, 21, built.widths[2]), path)


@pytest.mark.parametrize("function", ["softmax", "relu2", "laplace"])
def test_steps_do_not_depend_on_threads(function, path):
    """The sizes give each thread a part of every kernel."""
    path("native")
    built, x, threads = attention("large", attention_function=function), hidden(64, 5, 256).float(), []
    before = torch.get_num_threads()
    try:
        for number in (1, 3):
            torch.set_num_threads(number)
            threads.append(stream(built, x, (1,) * 5)[0])
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(*threads, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("past", [63, 64, 65])
def test_buffers_that_are_full(past, path):
    built = attention()
    compare(built, hidden(2, past + 3, 11), path, ([past, 1, 1, 1],))


FEED_FORWARD: Dict[str, Any] = {
    **{
        f"mega, {norm}, {'pre' if before else 'post'}": lambda norm=norm, before=before: NormalizedFeedForward(
            MegaLayerConfig(**SHAPES["odd"], ffn_dim=21, norm=norm, normalize_before=before)
        )
        for norm in ("layernorm", "scalenorm")
        for before in (False, True)
    },
    "megalodon, gated": lambda: FeedForward(megalodon_config(swiglu=True), 0),
    "megalodon, scaled": lambda: FeedForward(megalodon_config(layer_scale=True), 0),
    "megalodon, without a norm's scale": lambda: FeedForward(megalodon_config(norm_affine=False), 0),
}


@pytest.mark.parametrize("rows", [1, 3, MOST_ROWS + 1])
@pytest.mark.parametrize("kind", FEED_FORWARD)
@pytest.mark.usefixtures("cpu_level")
@torch.no_grad()
def test_the_feed_forward_sub_layer(kind, rows, path):
    torch.manual_seed(4)
    built = moved(FEED_FORWARD[kind](), 4)
    width = 12 if kind.startswith("megalodon") else 11
    x = 3 + torch.randn(rows, 1, width, dtype=torch.float64)  # a mean that the norm has to take off
    residual = [torch.randn_like(x)] if width == 12 else []
    results = {}
    for name, dtype in (("exact", torch.float64), ("reference", torch.float32), ("native", torch.float32)):
        path("reference" if name == "exact" else name)
        out = built.to(dtype)(*(part.to(dtype) for part in (x, *residual)))
        results[name] = out if residual else out[0]
    assert_close("output", results["native"], results["exact"], results["reference"])


@pytest.fixture
def calls(monkeypatch):
    """Names of the operators that are called from then on."""
    found, compiled = [], native.operators

    class Counting:
        def __getattr__(self, name):
            found.append(name)
            return getattr(compiled, name)

    monkeypatch.setattr(native, "operators", Counting())
    return found


def test_the_kernels_are_what_runs(path, calls):
    built = attention()
    stream(built, hidden(MOST_ROWS + 1, 2, 11).float(), (1,) * 2)
    assert calls == ["average_step", "attention_step", "mix_step"] * 2
    calls.clear()
    x = hidden(2, 9, 11).float()
    stream(built, x, (1,) * 9)
    assert calls == ["gated_attention_step"] * 9
    calls.clear()
    for name, data in (("reference", x), ("auto", x.double())):
        path(name)
        stream(built.to(data.dtype), data, (1,) * 9)
    with torch.enable_grad():
        run(built.float(), x[:, :1], return_state=True)
    assert not {"attention_step", "gated_attention_step"} & set(calls)


@pytest.mark.parametrize("kind", ["gated", "normalized"])
@torch.no_grad()
def test_a_step_of_a_layer_is_two_calls_of_kernels(kind, calls, monkeypatch):
    if kind == "gated":
        layer: Any = MegaLayer(MegaLayerConfig(**SHAPES["odd"], ffn_dim=8, chunk_size=4, normalize_before=True))
    else:
        layer = MegalodonLayer(megalodon_config(chunk_size=4))
    x = torch.randn(2, 6, 11 if kind == "gated" else 12)
    out = run(moved(layer), x[:, :5], return_state=True)
    calls.clear()
    monkeypatch.setattr(torch.nn.functional, "layer_norm", None)  # it is within
    run(layer, x[:, 5:], out, return_state=True)
    assert calls == [f"{kind}_attention_step", "feed_forward_step"]


@pytest.mark.parametrize("name", ["native", "reference"])
def test_long_texts_do_not_drift(name, path):
    """A slow decay multiplied 5,000 times: rounding it to float32 alone would show."""
    built = attention("vectors", chunk_size=8)
    with torch.no_grad():
        built.ema.alpha.fill_(-6.0)
        built.ema.delta.fill_(-3.0)
    x = hidden(1, 5000, 16)
    path("reference")
    want = stream(built.double(), x, (5000,))[1].memory.ema
    path(name)
    got = stream(built.float(), x.float(), (1,) * 5000)[1].memory.ema
    assert_close("state", got, want)


def test_a_slow_complex_decay_of_many_steps():
    """Rounded to float32, a decay that remembers a thousand steps is off by some 1e-5 after a few thousand."""
    generator = torch.Generator().manual_seed(1)
    leak = 2e-4 + 1e-3 * torch.rand(32, 4, generator=generator)
    log_decay = torch.complex(torch.log1p(-leak), 0.01 * torch.rand(32, 4, generator=generator))
    projection = torch.complex(torch.ones(32, 4), torch.ones(32, 4))
    coefficients = complex_step_coefficients(EMACoefficients(log_decay, leak, projection), torch.zeros(32))
    x, state = torch.ones(1, 32), None
    exact, decay = torch.zeros(1, 32, 4, dtype=torch.complex128), torch.exp(log_decay.to(torch.complex128))
    for _ in range(4000):
        y, state = complex_ema_step(x, coefficients, state)
        exact = decay * exact + leak.double()
    assert state is not None and state.dtype == torch.complex64
    assert ((state - exact).abs() / exact.abs()).max() < 4e-6
    torch.testing.assert_close(y.double(), (exact * (1 + 1j)).real.sum(-1), rtol=4e-6, atol=4e-6)


def test_padding_takes_the_other_path(path):
    path("native")
    built, x = attention(), hidden(2, 3, 11).float()
    mask, outputs, out = torch.tensor([[True, False, False], [False, False, False]]), [], None
    want = run(built, x, padding_mask=mask).hidden[~mask]
    with torch.no_grad():
        for step, absent in zip(x.split(1, 1), mask.split(1, 1)):
            out = run(built, step, out, padding_mask=absent, return_state=True)
            outputs.append(out.hidden)
    torch.testing.assert_close(torch.cat(outputs, 1)[~mask], want)


@pytest.mark.parametrize("function", ["softmax", "relu2", "laplace"])
@pytest.mark.parametrize(("shape", "width"), [("odd", 11), ("vectors", 16)])
def test_logits_far_apart(function, shape, width, path):
    """Only the largest logit counts, wherever it stands."""
    built = attention(shape, attention_function=function)
    with torch.no_grad():
        built.kappa.mul_(100.0)
    x = hidden(6, 19, width)
    path("reference")
    want, _ = stream(built.double(), x, (1,) * 19)
    path("native")
    got, _ = stream(built.float(), x.float(), (1,) * 19)
    assert_close("output", got, want)
