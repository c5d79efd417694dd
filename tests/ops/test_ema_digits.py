"""Rounding a slow decay to float32 costs no digits: in complex scans, in gradients, in blocks of channels, in steps."""

import pytest
import torch

from fairseq_mega.ops.ema import EMACoefficients, damped_ema, gated_ema_step
from tests.support import kernels

LENGTH, N = 20000, 4
SLOW = 1e-5  # of a step: what float32 rounds exp(-SLOW) by, 3e-8, adds up to 6e-4 over LENGTH of them


def parameters(kind, decays):
    """Coefficients of (rows, N) in float64; the decays are those of the rows."""
    generator = torch.Generator().manual_seed(4)
    shape = len(decays), N
    spread = 1 + torch.rand(shape, generator=generator, dtype=torch.float64)
    log_decay = (-torch.tensor(decays, dtype=torch.float64).unsqueeze(1) * spread).float().double()
    expansion, projection = (torch.rand(shape, generator=generator, dtype=torch.float64) + 0.5 for _ in range(2))
    if kind == "complex":
        angle = (0.02 + 0.3 * torch.rand(shape, generator=generator)).double()
        log_decay, projection = torch.complex(log_decay, angle), torch.complex(projection, projection / 2)
    return [log_decay, expansion, projection]


def single(tensors):
    return [tensor.to(torch.complex64 if tensor.is_complex() else torch.float32) for tensor in tensors]


def error(got, want):
    return ((got - want).norm() / want.norm()).item()


@pytest.mark.parametrize("kind", ["real", "complex"])
def test_scans_and_their_gradients(kernel_device, kind, request):
    if "simulator" in request.node.callspec.id:
        pytest.skip("the simulator takes minutes for 20,000 steps")
    noise = torch.randn(1, LENGTH, 3, generator=torch.Generator().manual_seed(6)).double()
    tensors = [noise + 1, *parameters(kind, (SLOW, 2 * SLOW, 4 * SLOW))]

    def outputs_and_gradients(given, path):
        x, *coefficients = (tensor.to(kernel_device).requires_grad_() for tensor in given)
        y, state = damped_ema(x, EMACoefficients(*coefficients), path=path, return_state=True)
        assert state is not None
        found = torch.autograd.grad((y * noise.to(y)).sum() / LENGTH + state.abs().sum(), [x, *coefficients])
        return [tensor.detach().cpu() for tensor in (y, state, *found)]

    wanted = outputs_and_gradients(tensors, "torch_fft")
    found = outputs_and_gradients(single(tensors), "native")
    names = ("output", "state", "gradient of x", "of the decay", "of the expansion", "of the projection")
    for name, got, want in zip(names, found, wanted):
        assert error(got, want) < 1e-5, name


def test_blocks_of_channels(kernel_device, request):
    """Slow decays after a block of 32 fast channels keep their digits."""
    if "simulator" in request.node.callspec.id:
        pytest.skip("the simulator takes minutes for 20,000 steps")
    tensors = [torch.ones(1, LENGTH, 40, dtype=torch.float64), *parameters("real", [0.5] * 32 + [SLOW] * 8)]
    x, *coefficients = (tensor.to(kernel_device) for tensor in single(tensors))
    got = damped_ema(x, EMACoefficients(*coefficients), path="native", return_state=True)[0].cpu()
    want = damped_ema(tensors[0], EMACoefficients(*tensors[1:]), path="torch_fft", return_state=True)[0]
    assert error(got[..., 32:], want[..., 32:]) < 1e-5


@pytest.mark.parametrize("kind", ["real", "complex"])
@pytest.mark.parametrize("kernels_of", ["cpu", "simulator"])
def test_steps(kernels_of, kind, request, monkeypatch):
    """State and output of single steps, also without a skip in some channel, and after thousands of them."""
    kernels.select(kernels_of, request, monkeypatch)
    exact = parameters(kind, (SLOW, 0.1, SLOW))
    coefficients = EMACoefficients(*single(exact))
    q, p, g = exact[0].exp(), exact[1], exact[2]
    omega = torch.tensor([0.0, 0.5, -1.0])
    want = torch.ones(2, 3, N, dtype=q.dtype)
    (state,) = single([want])
    generator = torch.Generator().manual_seed(5)
    for step in range(4000 if kernels_of == "cpu" else 3):
        x = torch.randn(2, 3, generator=generator) / 100
        with torch.no_grad():
            y, state = gated_ema_step(x, coefficients, omega, state)
        want = q * want + p * x.double().unsqueeze(-1)
        if step < 3:
            out = (g * want).real.sum(-1) + omega * x
            assert error(y, out * torch.sigmoid(out)) < 1e-6, step
    assert error(state, want) < 1e-5
