"""The timestep norm's statistics are carried in float64: no call rounds them, however many there are."""

import pytest
import torch

from fairseq_mega.ops.common import native
from fairseq_mega.ops.timestep_norm import TimestepNormState, timestep_norm
from tests.ops.timestep_norm_cases import exact

BATCH, LENGTH, GROUPS, FEATURES, COUNT = 2, 5, 3, 4, 1000
STEPS = 100_000


def check_that_no_digit_is_lost(path, device, dtype=torch.float32):
    """Groups of equal features, whose mean and variance have no rounding of their own, against sums in float64."""
    generator = torch.Generator().manual_seed(2)
    values = torch.randint(90, 110, (BATCH, LENGTH, GROUPS), generator=generator)
    x = values.repeat_interleave(FEATURES, dim=-1).to(device, dtype)
    before = torch.rand(4, BATCH, GROUPS, generator=generator, dtype=torch.float64)
    mean, variance = (100 + before[0]).requires_grad_(), (1 + before[1]).requires_grad_()
    count = torch.full((BATCH,), COUNT, device=device)
    zero = torch.zeros(GROUPS * FEATURES, device=device)
    carried = TimestepNormState(count, mean.to(device), variance.to(device))
    y, state = timestep_norm(x, zero, zero, GROUPS, state=carried, path=path)
    assert y.dtype == dtype
    got = [state.mean.cpu(), state.variance.cpu()]
    got += torch.autograd.grad(got, (mean, variance), list(before[2:]))
    _, *want = exact(x.cpu(), GROUPS, 100.0, COUNT, mean.unsqueeze(1), variance.unsqueeze(1))
    want += torch.autograd.grad(want, (mean, variance), list(before[2:]))
    # A kernel's backward pass has the way of a mean in float32: 1e-9 here, where a rounded gradient is off by 3e-8.
    bounds = {"mean": 1e-13, "variance": 1e-13, "gradient of mean": 5e-9, "gradient of variance": 5e-9}
    for (name, bound), value, expected in zip(bounds.items(), got, want):
        assert value.dtype == torch.float64, name
        error = (value - expected).abs().max()
        assert error <= bound, f"{name}: {error:.3g}"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_kernels_lose_no_digit(dtype, kernel_device):
    check_that_no_digit_is_lost("native", kernel_device, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("path", ["reference", "torch"])
def test_no_path_loses_a_digit(path, dtype):
    check_that_no_digit_is_lost(path, "cpu", dtype)


@pytest.mark.parametrize("path", ["reference", "torch", None])
@pytest.mark.parametrize("length", [0, 2])
def test_statistics_of_less_precision_are_widened(path, length):
    mean, variance = torch.rand(2, BATCH, 1).requires_grad_()
    zero = torch.zeros(FEATURES)
    state = TimestepNormState(torch.full((BATCH,), COUNT), mean, variance)
    y, state = timestep_norm(torch.rand(BATCH, length, FEATURES), zero, zero, 1, state=state, path=path)
    assert y.dtype == torch.float32 and state.mean.dtype == state.variance.dtype == torch.float64
    found = torch.autograd.grad(state.mean.sum() + state.variance.sum(), (mean, variance))
    assert all(gradient.dtype == torch.float32 and gradient.abs().min() > 0.9 for gradient in found)


def random_pieces(steps):
    """Lengths of 1 to 50 that make up most of a stream; the last fifth is read step by step."""
    lengths = torch.randint(1, 51, (steps,), generator=torch.Generator().manual_seed(4)).tolist()
    pieces, rest = [], steps * 4 // 5
    while rest > 0:
        pieces.append(min(lengths.pop(), rest))
        rest -= pieces[-1]
    return [*pieces, *[1] * (steps - sum(pieces))]


@pytest.mark.parametrize("path, steps", [("reference", 2_000), ("torch", 8_000), ("native", STEPS)])
@torch.no_grad()
def test_a_long_stream_in_random_pieces(path, steps):
    """Mean 100 and deviation 1: y and the statistics are as far from the truth as float32 alone makes them."""
    if path == "native" and native.PROBLEM is not None:
        pytest.skip(f"no compiled kernels: {native.PROBLEM}")
    generator = torch.Generator().manual_seed(3)
    x = 100 + torch.randn(1, steps, 8, generator=generator)
    zero, state, outputs = torch.zeros(8), None, []
    for piece in x.split(random_pieces(steps), dim=1):
        y, state = timestep_norm(piece, zero, zero, 2, state=state, path=path)
        outputs.append(y)
    want_y, want_mean, want_variance = exact(x, 2, 100.0)
    assert state is not None and state.count.item() == steps
    assert (state.mean - want_mean).abs().max() < 3.8e-6  # half a unit in the last place of 100
    assert (state.variance - want_variance).abs().max() < 1.2e-7  # one of 1
    assert (torch.cat(outputs, dim=1) - want_y).abs()[:, 100:].max() < 2e-6
