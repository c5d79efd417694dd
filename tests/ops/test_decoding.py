"""Decoding by the functions of single steps against whole layers in float64: outputs, states, forks, errors."""

import itertools
from typing import Any, Dict

import pytest
import torch

from fairseq_mega.modules.config import MegaLayerConfig
from fairseq_mega.modules.feed_forward import NormalizedFeedForward
from fairseq_mega.modules.gated_attention import GatedAttention
from fairseq_mega.modules.mega_layer import MegaLayer
from fairseq_mega.ops.common import native
from fairseq_mega.ops.common.dispatch import VARIABLE
from fairseq_mega.ops.packed_linear import MOST_ROWS
from tests.support.layers import reorder, run
from tests.support.numerics import assert_close

pytestmark = pytest.mark.skipif(native.PROBLEM is not None, reason=f"compiled kernels: {native.PROBLEM}")

SHAPES: Dict[str, Dict[str, Any]] = {
    "odd": {"embed_dim": 11, "hidden_dim": 13, "z_dim": 6, "ema_dim": 3},
    "vectors": {"embed_dim": 16, "hidden_dim": 80, "z_dim": 24, "ema_dim": 16},
    "one dimension": {"embed_dim": 5, "hidden_dim": 70, "z_dim": 2, "ema_dim": 1},
}


def attention(shape="odd", **options):
    torch.manual_seed(3)
    built = GatedAttention(MegaLayerConfig(**{**SHAPES[shape], "max_positions": 64, **options})).eval()
    with torch.no_grad():  # away from the near-zero start, where attention hardly matters
        for parameter in built.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return built


def hidden(batch, length, width, seed=1):
    return torch.randn(batch, length, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def stream(built, x, pieces):
    out, outputs, start = None, [], 0
    with torch.no_grad():
        for size in pieces:
            out = run(built, x[:, start : start + size], out, return_state=True)
            outputs.append(out.hidden)
            start += size
    assert start == x.size(1)
    return torch.cat(outputs, dim=1), out


@pytest.fixture
def path(monkeypatch):
    return lambda name: monkeypatch.setenv(VARIABLE, f"decoding={name}")


@pytest.mark.usefixtures("cpu_level")
@pytest.mark.parametrize("function", ["softmax", "relu2", "laplace"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("chunk_size", [-1, 1, 4, 21])
@pytest.mark.parametrize("prenorm, norm", [(False, "layernorm"), (True, "layernorm"), (True, "rmsnorm")])
def test_steps_equal_the_whole(function, shape, chunk_size, prenorm, norm, path):
    options = {"attention_function": function, "chunk_size": chunk_size, "normalize_before": prenorm, "norm": norm}
    built = attention(shape, relative_bias="rotary" if chunk_size == 4 else "simple", **options)
    x = hidden(3, 21, built.widths[0])
    results = {}
    path("reference")
    for dtype, parts in ((torch.float64, [21]), (torch.float32, [1] * 21)):
        results[dtype] = stream(built.to(dtype), x.to(dtype), parts)
    for name, pieces in itertools.product(("native", "reference"), ([1] * 21, [5, 1, 1, 7, 1, 1, 1, 4])):
        path(name)
        got, last = stream(built, x.float(), pieces)
        assert_close(f"{name}, output of {pieces}", got, results[torch.float64][0], results[torch.float32][0])
        found = (last, results[torch.float64][1], results[torch.float32][1])
        assert_close("state of the EMA", *(out.memory.ema for out in found))
        for name in ("keys", "values"):
            assert_close(name, *(getattr(out.cache, name).steps for out in found))


def test_the_kernels_are_what_runs(path, monkeypatch):
    calls, built, compiled = [], attention(), native.operators

    class Counting:
        def __getattr__(self, name):
            if name in ("attention_step", "gated_attention_step"):
                calls.append(name)
            return getattr(compiled, name)

    monkeypatch.setattr(native, "operators", Counting())
    many = hidden(MOST_ROWS + 1, 2, 11).float()  # the linear maps are PyTorch's, then
    stream(built, many, (1,) * 2)
    assert calls == ["attention_step"] * 2
    calls.clear()
    x = hidden(2, 9, 11).float()
    stream(built, x, (1,) * 9)
    assert calls == ["gated_attention_step"] * 9
    for name, data in (("reference", x), ("auto", x.double())):
        path(name)
        stream(built.to(data.dtype), data, (1,) * 9)
    assert len(calls) == 9
    with torch.enable_grad():
        run(built.float(), x[:, :1], return_state=True)
    assert len(calls) == 9


@pytest.mark.usefixtures("cpu_level")
@pytest.mark.parametrize("rows", [1, 3, MOST_ROWS + 1])
@pytest.mark.parametrize("prenorm", [False, True])
@pytest.mark.parametrize("norm", ["layernorm", "scalenorm"])
@torch.no_grad()
def test_the_feed_forward_sub_layer(norm, prenorm, rows, path):
    torch.manual_seed(4)
    config = MegaLayerConfig(**SHAPES["odd"], ffn_dim=21, norm=norm, normalize_before=prenorm)
    built = NormalizedFeedForward(config).eval()
    for parameter in built.parameters():
        parameter.add_(0.3 * torch.randn_like(parameter))
    x = 3 + torch.randn(rows, 1, 11, dtype=torch.float64)  # a mean that the norm has to take off
    results = {}
    for name, dtype in (("exact", torch.float64), ("reference", torch.float32), ("native", torch.float32)):
        path("reference" if name == "exact" else name)
        results[name] = built.to(dtype)(x.to(dtype))
    assert_close("output", results["native"], results["exact"], results["reference"])


@torch.no_grad()
def test_a_step_of_a_layer_is_two_calls_of_kernels(monkeypatch):
    calls, compiled = [], native.operators

    class Counting:
        def __getattr__(self, name):
            calls.append(name)
            return getattr(compiled, name)

    layer = MegaLayer(MegaLayerConfig(**SHAPES["odd"], ffn_dim=8, chunk_size=4, normalize_before=True)).eval()
    x = torch.randn(2, 6, 11)
    out = run(layer, x[:, :5], return_state=True)
    monkeypatch.setattr(native, "operators", Counting())
    monkeypatch.setattr(torch.nn.functional, "layer_norm", None)  # it is within
    run(layer, x[:, 5:], out, return_state=True)
    assert calls == ["gated_attention_step", "feed_forward_step"]


@pytest.mark.parametrize("function", ["softmax", "laplace"])
def test_many_rows_equal_few_rows(function, path):
    """Single steps of many rows, whose linear maps PyTorch computes, equal those of the first rows alone."""
    path("native")
    built = attention(attention_function=function, chunk_size=4)
    x = hidden(MOST_ROWS + 1, 6, 11).float()
    many, last = stream(built, x, (1,) * 6)
    few, before = stream(built, x[:3], (1,) * 6)
    torch.testing.assert_close(many[:3], few)
    torch.testing.assert_close(last.memory.ema[:3], before.memory.ema)
    torch.testing.assert_close(last.cache.keys.steps[:3], before.cache.keys.steps)


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


def test_a_state_may_be_continued_twice(path):
    path("native")
    built = attention(chunk_size=8)
    x, other = hidden(2, 14, 11).float(), hidden(2, 9, 11, seed=7).float()
    prefix = x[:, :5]
    _, before = stream(built, prefix, (1,) * 5)

    def go_on(after):
        out, outputs = before, []
        with torch.no_grad():
            for t in range(9):
                out = run(built, after[:, t : t + 1], out, return_state=True)
                outputs.append(out.hidden)
        return torch.cat(outputs, dim=1)

    first, second, again = go_on(x[:, 5:]), go_on(other), go_on(x[:, 5:])
    torch.testing.assert_close(first, stream(built, x, (1,) * 14)[0][:, 5:])
    torch.testing.assert_close(second, stream(built, torch.cat([prefix, other], 1), (1,) * 14)[0][:, 5:])
    assert torch.equal(first, again)


def test_states_follow_their_rows(path):
    path("native")
    built = attention()
    x = hidden(3, 8, 11).float()
    order = torch.tensor([2, 0, 0, 1])
    _, before = stream(built, x[:, :7], (1,) * 7)
    with torch.no_grad():
        kept = run(built, x[:, 7:], before, return_state=True).hidden
        moved = run(built, x[order, 7:], reorder(before, order), return_state=True).hidden
    torch.testing.assert_close(moved, kept[order])


def test_padding_takes_the_other_path(path):
    path("native")
    built = attention()
    x = hidden(2, 3, 11).float()
    mask = torch.tensor([[True, False, False], [False, False, False]])
    want = run(built, x, padding_mask=mask).hidden[~mask]
    outputs, out = [], None
    with torch.no_grad():
        for t in range(3):
            out = run(built, x[:, t : t + 1], out, padding_mask=mask[:, t : t + 1], return_state=True)
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
