"""Numbers of 16 bits are read exactly and written as torch rounds them: to the nearest, ties to even."""

import pytest
import torch

from fairseq_mega.ops.common import native
from fairseq_mega.ops.ema import EMACoefficients, damped_ema
from tests.simulator import build

HALVES = (torch.bfloat16, torch.float16)


def through(kernel_device, x, weights):
    """x times a float32 weight per channel, rounded to the type of x, by an EMA without a memory: (1, 1, D)."""
    decay = torch.full((weights.numel(), 4), -200.0)  # four components: as many as are computed side by side
    quarters = (weights / 4).unsqueeze(1).expand(-1, 4).contiguous()
    parts = (part.to(kernel_device) for part in (decay, torch.ones_like(decay), quarters))
    with torch.no_grad():
        return damped_ema(x.to(kernel_device), EMACoefficients(*parts), path="native")[0].cpu()


def same(got, want):
    """Equal to the last bit, the sign of a zero included; a NaN may be any."""
    bits = got.view(torch.int16) == want.view(torch.int16)
    return bool((bits | (got.isnan() & want.isnan())).all())


@pytest.mark.parametrize("dtype", HALVES)
def test_every_number_is_read_and_written(any_kernels, dtype):
    """All bit patterns but zeros and what a quarter of, in float32, is no normal number.

    Infinities on the CPU only: the other kernels multiply what they read by powers of zero.
    """
    patterns = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16).view(dtype)
    x = patterns[~(patterns.float().abs() < 2.0**-120)].view(1, 1, -1)
    assert x.isinf().sum() == 2 and x.numel() > 60000
    got = through(any_kernels, x, torch.ones(x.numel()))
    if native.NAMESPACE == build.NAMESPACE or any_kernels.type == "cuda":
        got, x = got[~x.isinf()], x[~x.isinf()]
    assert same(got, x)
    if x.isinf().any():
        infinities = x[x.isinf()].view(1, 1, -1)
        assert same(through(any_kernels, infinities, torch.full((2,), 0.5)), infinities)  # no large numbers


@pytest.mark.parametrize("dtype", HALVES)
def test_rounding_is_torchs(any_kernels, dtype):
    generator = torch.Generator().manual_seed(1)
    near = torch.randn(500, generator=generator)
    halfway = near.to(dtype).float()
    halfway += halfway.abs() * torch.finfo(dtype).eps / 4  # between two numbers, or a tie
    steps = torch.arange(1, 200) * 2.0**-25  # multiples and ties of float16's numbers below the normal range
    ties = 1 + torch.arange(1, 40) * torch.finfo(dtype).eps / 2
    edges = torch.tensor([65503.0, 65504.0, 65519.0, 65520.0, 65536.0, 1e5, 3.3e38, 6.1e-5, 6.2e-5, 2.0**-14, 1e-30])
    special = torch.tensor(
        [float("inf"), float("nan"), torch.tensor(0x7FFFFFFF, dtype=torch.int32).view(torch.float32)]
    )
    values = torch.cat([near, halfway, steps, ties, edges, special])
    values = torch.cat([values, -values])
    got = through(any_kernels, torch.ones(1, 1, values.numel(), dtype=dtype), values)
    assert same(got, values.to(dtype).view(1, 1, -1))
