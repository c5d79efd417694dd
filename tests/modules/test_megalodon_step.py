"""Single steps of MEGALODON: the digits of the EMA over a long text, and kernels against operators."""

from typing import Any, Dict

import pytest
import torch

from fairseq_mega.modules.megalodon.attention import NormalizedGatedAttention
from fairseq_mega.modules.megalodon.config import MegalodonLayerConfig
from fairseq_mega.modules.megalodon.feed_forward import FeedForward
from fairseq_mega.modules.megalodon.layer import MegalodonLayer
from fairseq_mega.modules.megalodon.norms import TimestepNorm
from fairseq_mega.ops.common import native
from fairseq_mega.ops.common.dispatch import VARIABLE
from fairseq_mega.ops.decoding import complex_step_coefficients
from fairseq_mega.ops.decoding.reference import complex_ema_step
from fairseq_mega.ops.ema import EMACoefficients
from fairseq_mega.ops.packed_linear import MOST_ROWS
from fairseq_mega.ops.timestep_norm import TimestepNormState
from tests.support.layers import run
from tests.support.numerics import assert_close


def test_a_slow_decay_of_many_steps() -> None:
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


needs_kernels = pytest.mark.skipif(native.PROBLEM is not None, reason=f"no compiled kernels: {native.PROBLEM}")
SHAPES: Dict[str, Dict[str, Any]] = {
    "odd": {"embed_dim": 12, "hidden_dim": 13, "z_dim": 6, "ema_dim": 3, "heads": 1},
    "heads": {"embed_dim": 16, "hidden_dim": 80, "z_dim": 24, "ema_dim": 16, "heads": 2},
    "without scales": {"embed_dim": 12, "hidden_dim": 13, "z_dim": 6, "ema_dim": 3, "heads": 1, "norm_affine": False},
    "silu": {"embed_dim": 12, "hidden_dim": 13, "z_dim": 6, "ema_dim": 3, "heads": 1, "ema_norm": "silu"},
}


@needs_kernels
@pytest.mark.parametrize("rows", [1, 3, MOST_ROWS + 1])
@pytest.mark.parametrize("chunk_size", [-1, 4])
@pytest.mark.parametrize("shape", SHAPES)
@torch.no_grad()
def test_the_kernel_equals_the_operators(shape: str, chunk_size: int, rows: int, monkeypatch: Any) -> None:
    torch.manual_seed(3)
    config = MegalodonLayerConfig(**SHAPES[shape], ffn_dim=8, norm_groups=2, chunk_size=chunk_size)
    built = moved(NormalizedGatedAttention(config))  # away from the near-zero start, where attention hardly matters
    x = torch.randn(rows, 11, config.embed_dim, dtype=torch.float64)
    results: Dict[str, Any] = {}
    for path, dtype in (("exact", torch.float64), ("reference", torch.float32), ("native", torch.float32)):
        monkeypatch.setenv(VARIABLE, "decoding=" + ("reference" if path == "exact" else path))
        built, out, outputs = built.to(dtype), None, []
        for t in range(11):
            out = run(built, x[:, t : t + 1].to(dtype), out, return_state=True)
            outputs.append(out.hidden)
        memory, cache = out.memory, out.cache  # type: ignore[union-attr]
        state = torch.view_as_real(memory.ema)
        assert torch.equal(memory.norm.count, torch.full((rows,), 11))
        statistics = memory.norm.mean.to(dtype), memory.norm.variance.to(dtype)
        results[path] = torch.cat(outputs, 1), state, cache.keys.steps, cache.values.steps, *statistics
    for index, name in enumerate(("output", "state of the EMA", "keys", "values", "mean", "variance")):
        assert_close(name, results["native"][index], results["exact"][index], results["reference"][index])


def moved(module: Any) -> Any:
    """The module with other parameters than it begins with, for evaluation."""
    for parameter in module.parameters():
        parameter.add_(0.3 * torch.randn_like(parameter))
    return module.eval()


@needs_kernels
@pytest.mark.parametrize("rows", [1, 3, MOST_ROWS + 1])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("gated, scaled", [(False, True), (True, False)])
@torch.no_grad()
def test_the_kernel_of_the_feed_forward_sub_layer(
    gated: bool, scaled: bool, affine: bool, rows: int, monkeypatch: Any
) -> None:
    torch.manual_seed(4)
    config = MegalodonLayerConfig(
        **SHAPES["odd"], ffn_dim=21, norm_groups=2, swiglu=gated, layer_scale=scaled, norm_affine=affine
    )
    built = moved(FeedForward(config, 0))
    x = 3 + torch.randn(rows, 1, config.embed_dim, dtype=torch.float64)  # a mean that the norm has to take off
    residual, results = torch.randn_like(x), {}
    for path, dtype in (("exact", torch.float64), ("reference", torch.float32), ("native", torch.float32)):
        monkeypatch.setenv(VARIABLE, "decoding=" + ("reference" if path == "exact" else path))
        results[path] = built.to(dtype)(x.to(dtype), residual.to(dtype))
    assert_close("output", results["native"], results["exact"], results["reference"])


@needs_kernels
@pytest.mark.parametrize("groups", [1, 4, 12])
@pytest.mark.parametrize("away", [0.0, 1000.0])
@torch.no_grad()
def test_the_kernel_of_the_timestep_norm(away: float, groups: int, monkeypatch: Any) -> None:
    """Results are the reference's from unused statistics of any value, and from used ones, also far from zero."""
    torch.manual_seed(5)
    norm = moved(TimestepNorm(12, groups))
    nothing = torch.full((2, groups), 7.0, dtype=torch.float64)
    counts = torch.tensor([0, 7])
    mean, variance = (torch.where(counts.unsqueeze(1) > 0, away + torch.rand(2, groups), nothing) for _ in range(2))
    x = away + torch.randn(2, 5, 12)
    results: Dict[str, Any] = {}
    for path, dtype in (("exact", torch.float64), ("reference", torch.float32), ("native", torch.float32)):
        monkeypatch.setenv(VARIABLE, "timestep_norm=" + ("reference" if path == "exact" else path))
        state, outputs = TimestepNormState(counts, mean, variance), []
        for t in range(5):
            y, state = norm.to(dtype)(x[:, t : t + 1].to(dtype), None, state)
            outputs.append(y)
        assert torch.equal(state.count, counts + 5)
        results[path] = torch.cat(outputs, 1), state.mean.to(dtype), state.variance.to(dtype)
    for index, name in enumerate(("output", "mean", "variance")):
        assert_close(name, results["native"][index], results["exact"][index], results["reference"][index])


@needs_kernels
@torch.no_grad()
def test_a_step_is_two_calls_of_kernels(monkeypatch: Any) -> None:
    calls, compiled = [], native.operators

    class Counting:
        def __getattr__(self, name: str) -> Any:
            calls.append(name)
            return getattr(compiled, name)

    layer = moved(MegalodonLayer(MegalodonLayerConfig(**SHAPES["odd"], ffn_dim=8, norm_groups=2, chunk_size=4)))
    x = torch.randn(2, 6, 12)
    out = run(layer, x[:, :5], return_state=True)
    monkeypatch.setattr(native, "operators", Counting())
    run(layer, x[:, 5:], out, return_state=True)
    assert calls == ["normalized_attention_step", "feed_forward_step"]
