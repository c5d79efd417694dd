"""Single steps of MEGALODON: the digits of the EMA over a long text, and kernels against operators."""

from typing import Any, Dict

import pytest
import torch

from fairseq_mega.modules.megalodon.attention import NormalizedGatedAttention
from fairseq_mega.modules.megalodon.config import MegalodonLayerConfig
from fairseq_mega.modules.megalodon.step import complex_step, ema_step
from fairseq_mega.ops import native, step
from fairseq_mega.ops.ema import EMACoefficients
from fairseq_mega.ops.packed_linear import MOST_ROWS
from tests.support.layers import run
from tests.support.numerics import assert_close


def test_a_slow_decay_of_many_steps() -> None:
    """Rounded to float32, a decay that remembers a thousand steps is off by some 1e-5 after a few thousand."""
    generator = torch.Generator().manual_seed(1)
    leak = 2e-4 + 1e-3 * torch.rand(32, 4, generator=generator)
    log_decay = torch.complex(torch.log1p(-leak), 0.01 * torch.rand(32, 4, generator=generator))
    projection = torch.complex(torch.ones(32, 4), torch.ones(32, 4))
    coefficients = complex_step(EMACoefficients(log_decay, leak, projection))
    x, omega, state = torch.ones(1, 32), torch.zeros(32), None
    exact, decay = torch.zeros(1, 32, 4, dtype=torch.complex128), torch.exp(log_decay.to(torch.complex128))
    for _ in range(4000):
        y, state = ema_step(x, coefficients, omega, state)
        exact = decay * exact + leak.double()
    assert state is not None and state.dtype == torch.complex64
    assert ((state - exact).abs() / exact.abs()).max() < 4e-6
    torch.testing.assert_close(y.double(), (exact * (1 + 1j)).real.sum(-1), rtol=4e-6, atol=4e-6)


SHAPES: Dict[str, Dict[str, Any]] = {
    "odd": {"embed_dim": 12, "hidden_dim": 13, "z_dim": 6, "ema_dim": 3, "heads": 1},
    "heads": {"embed_dim": 16, "hidden_dim": 80, "z_dim": 24, "ema_dim": 16, "heads": 2},
    "without scales": {"embed_dim": 12, "hidden_dim": 13, "z_dim": 6, "ema_dim": 3, "heads": 1, "norm_affine": False},
    "silu": {"embed_dim": 12, "hidden_dim": 13, "z_dim": 6, "ema_dim": 3, "heads": 1, "ema_norm": "silu"},
}


@pytest.mark.skipif(native.PROBLEM is not None, reason=f"no compiled kernels: {native.PROBLEM}")
@pytest.mark.parametrize("rows", [1, 3, MOST_ROWS + 1])
@pytest.mark.parametrize("chunk_size", [-1, 4])
@pytest.mark.parametrize("shape", SHAPES)
@torch.no_grad()
def test_the_kernel_equals_the_operators(shape: str, chunk_size: int, rows: int, monkeypatch: Any) -> None:
    torch.manual_seed(3)
    config = MegalodonLayerConfig(**SHAPES[shape], ffn_dim=8, norm_groups=2, chunk_size=chunk_size)
    built = NormalizedGatedAttention(config).eval()
    for parameter in built.parameters():  # away from the near-zero start, where attention hardly matters
        parameter.add_(0.3 * torch.randn_like(parameter))
    x = torch.randn(rows, 11, config.embed_dim, dtype=torch.float64)
    results: Dict[str, Any] = {}
    for path, dtype in (("exact", torch.float64), ("reference", torch.float32), ("native", torch.float32)):
        monkeypatch.setenv(step.PATHS.variable, "reference" if path == "exact" else path)
        built, out, outputs = built.to(dtype), None, []
        for t in range(11):
            out = run(built, x[:, t : t + 1].to(dtype), out, return_state=True)
            outputs.append(out.hidden)
        memory, cache = out.memory, out.cache  # type: ignore[union-attr]
        state = torch.view_as_real(memory.ema)
        results[path] = torch.cat(outputs, 1), state, cache.keys.steps, cache.values.steps
    for index, name in enumerate(("output", "state of the EMA", "keys", "values")):
        assert_close(name, results["native"][index], results["exact"][index], results["reference"][index])
