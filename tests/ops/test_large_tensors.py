"""Tensors of more than 2^31 numbers on a GPU: no index may be a 32-bit one."""

import pytest
import torch

from fairseq_mega.ops.common import native
from fairseq_mega.ops.ema import EMACoefficients, damped_ema
from fairseq_mega.ops.gate import gated_residual
from fairseq_mega.ops.timestep_norm import timestep_norm

LENGTH, WIDTH, N = 4096, 512, 2
BATCH = 2**31 // (LENGTH * WIDTH) + 2
GIB_PER_TENSOR = 2 * BATCH * LENGTH * WIDTH / 2**30


def ema(x):
    rows = torch.linspace(0.1, 0.9, WIDTH * N, device=x.device).view(WIDTH, N)
    return damped_ema(x, EMACoefficients(torch.log(rows), rows, 1 - rows), path="native")[0]


def norm(x):
    weight = torch.linspace(-0.5, 0.5, WIDTH, device=x.device)
    return timestep_norm(x, weight, weight, 4, path="native")[0]


def gate(x):
    return gated_residual(x, x, x, path="native")


@pytest.mark.gpu
@pytest.mark.parametrize("operator", [ema, norm, gate])
def test_more_than_2_to_the_31_numbers(operator, device):
    """The first sequences and the last give what they give alone, outputs and gradients."""
    if not native.HAS_CUDA:
        pytest.skip(f"no compiled kernels for CUDA: {native.PROBLEM or 'FORCE_CUDA=1'}")
    needed = 8 * GIB_PER_TENSOR  # input, output, their gradients, and what the gate adds
    free = torch.cuda.mem_get_info(device)[0] / 2**30
    if free < needed:
        pytest.skip(f"needs {needed:.0f} GiB of the GPU's memory, {free:.0f} are free")
    some = torch.tensor([0, 1, BATCH - 2, BATCH - 1], device=device)
    x = torch.empty(BATCH, LENGTH, WIDTH, dtype=torch.bfloat16, device=device).normal_()
    assert x.numel() > 2**31
    alone = x[some].requires_grad_()
    x.requires_grad_()
    y, want = operator(x), operator(alone)
    # The scan may cut a short batch into segments of time, which adds in another order.
    torch.testing.assert_close(y[some], want, rtol=2e-2, atol=2e-2)
    weights = torch.linspace(-1, 1, WIDTH, device=device, dtype=torch.bfloat16)
    (found,) = torch.autograd.grad(y, x, weights.expand_as(y))
    (wanted,) = torch.autograd.grad(want, alone, weights.expand_as(want))
    torch.testing.assert_close(found[some], wanted, rtol=2e-2, atol=2e-2)
    middle = slice(BATCH // 2, BATCH // 2 + 1)
    assert torch.isfinite(y[middle]).all() and torch.isfinite(found[middle]).all()
