"""The timestep norm's paths against its recurrence: values, final statistics, every gradient, padding."""

import math

import pytest
import torch

from fairseq_mega.ops.timestep_norm import timestep_norm
from tests.ops.timestep_norm_cases import COUNTS, LENGTHS, SHAPES, compare, draw, padding, run
from tests.support.numerics import gradients, leaves


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(("width", "groups"), SHAPES)
def test_kernels_equal_recurrence(width, groups, length, kernel_device):
    compare(draw(length, width, groups), torch.float32, "native", kernel_device)


@pytest.mark.parametrize(("batch", "length"), [(520, 70), (1, 2180)])
def test_kernels_with_many_sequences_or_tiles(batch, length, kernel_device):
    """Kernels are right where a full GPU has one block for all tiles, and where every tile has its own block."""
    counts = tuple(COUNTS[i % len(COUNTS)] for i in range(1, batch + 1))
    compare(draw(length, 8, 1, batch), torch.float32, "native", kernel_device, counts)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(("width", "groups"), SHAPES[:3])
def test_torch_equals_recurrence(width, groups, length, dtype):
    compare(draw(length, width, groups), dtype, "torch")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_kernels_in_half_precision(dtype, kernel_device):
    mask = padding("interior", 67)
    compare(draw(67, 80, 2), dtype, "native", kernel_device, mask=mask)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_torch_in_half_precision(dtype):
    compare(draw(67, 80, 2), dtype, "torch", mask=padding("interior", 67))


@pytest.mark.parametrize("kind", ["left", "right", "interior", "one", "everything"])
@pytest.mark.parametrize("length", [7, 65, 131])
def test_padding_in_kernels(kind, length, kernel_device):
    compare(draw(length), torch.float32, "native", kernel_device, mask=padding(kind, length))


@pytest.mark.parametrize("kind", ["left", "right", "interior", "one", "everything"])
@pytest.mark.parametrize("length", [7, 65])
def test_padding_in_torch(kind, length):
    compare(draw(length), torch.float64, "torch", mask=padding(kind, length))
    compare(draw(length), torch.float32, "torch", mask=padding(kind, length))


def check_that_padding_is_never_seen(path, device):
    mask = padding("interior", 40).to(device)
    tensors = {name: value.to(device) for name, value in draw(40).items()}
    clean, spoilt = leaves(tensors, torch.float32), leaves(tensors, torch.float32)
    want = run(clean, path, mask=mask)
    with torch.no_grad():
        spoilt["x"].masked_fill_(mask.unsqueeze(-1), math.nan)
    got = run(spoilt, path, mask=mask)
    assert (got["y"].masked_select(mask.unsqueeze(-1)) == 0).all()
    for name, value in want.items():
        assert torch.equal(got[name], value), name
    want_gradients = gradients(want["y"].cpu(), clean)
    for name, value in gradients(got["y"].cpu(), spoilt).items():
        assert torch.equal(value, want_gradients[name]), f"gradient of {name}"
    found = torch.autograd.grad(run(spoilt, path, mask=mask)["y"].sum(), spoilt["x"])[0]
    assert (found.masked_select(mask.unsqueeze(-1)) == 0).all()


def test_padding_is_never_seen_by_kernels(kernel_device):
    check_that_padding_is_never_seen("native", kernel_device)


@pytest.mark.parametrize("path", ["reference", "torch"])
def test_padding_is_never_seen(path):
    check_that_padding_is_never_seen(path, "cpu")


def test_gradcheck():
    inputs = leaves(draw(5, 4, 2), torch.float64)
    names = list(inputs)
    mask = padding("interior", 5)

    def outputs(*values):
        return tuple(run(dict(zip(names, values)), "torch", mask=mask).values())

    assert torch.autograd.gradcheck(outputs, tuple(inputs.values()))


GOLDEN_FIRST = [2.264182, 1.341406, -0.681409, -1.127257, -1.206937, 0.444995, 1.887516, -0.186353]
GOLDEN_LAST = [-0.216537, -1.235175, 0.128369, 0.783967, 0.109611, -0.097327, -1.346475, -1.548377]


def check_golden_values(path, device):
    """Row "timestep norm" of the published arithmetic: parameters 0.5 sin(1), 0.5 sin(2), ..., x a cosine wave."""
    t, b, j = torch.arange(6.0)[None, :, None], torch.arange(2.0)[:, None, None], torch.arange(8.0)[None, None]
    x = torch.cos(0.3 * t + 0.7 * b + 1.1 * j).to(device)
    parameter = 0.5 * torch.sin(torch.arange(1.0, 9.0)).to(device)
    y, _ = timestep_norm(x, parameter, parameter, 2, path=path)
    torch.testing.assert_close(y[0, 0].cpu(), torch.tensor(GOLDEN_FIRST), atol=2e-5, rtol=0)
    torch.testing.assert_close(y[1, 5].cpu(), torch.tensor(GOLDEN_LAST), atol=2e-5, rtol=0)
    assert y.double().sum().item() == pytest.approx(-14.180963, abs=2e-5)


def test_golden_values_of_kernels(kernel_device):
    check_golden_values("native", kernel_device)


@pytest.mark.parametrize("path", ["reference", "torch"])
def test_golden_values(path):
    check_golden_values(path, "cpu")
