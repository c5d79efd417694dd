"""The EMA of single steps keeps float32's digits over a long text."""

import torch

from fairseq_mega.modules.megalodon.step import complex_step, ema_step
from fairseq_mega.ops.ema import EMACoefficients


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
