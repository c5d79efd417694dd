"""The FFT convolution kernels against torch's FFT in float64: values and both gradients.

The kernels are CUDA's: on the CPU torch's FFT is the path, so the compiled CPU kernels have no part here.
"""

import pytest
import torch

from fairseq_mega.ops.fft_conv import (
    LONGEST,
    fft_convolution,
    ring_convolution,
    ring_kernel,
    ring_size,
)
from tests.support.numerics import GRADIENT_FACTOR, OUTPUT_FACTOR, assert_close, gradients, leaves

WIDTH = 3
FACTORS = {"y": OUTPUT_FACTOR, "gradient of x": GRADIENT_FACTOR, "gradient of ring": GRADIENT_FACTOR}
with_kernels = pytest.mark.parametrize("kernel_device", ["simulator", "cuda"], indirect=True)


def by_torch(x, ring):
    """The definition, by FFTs of the ring's length."""
    columns = ring.size(1)
    spectrum = torch.fft.rfft(x.transpose(1, 2), columns) * torch.fft.rfft(ring, columns)
    return torch.fft.irfft(spectrum, columns)[..., : x.size(1)].transpose(1, 2)


def on_a_ring(x, kernel, future):
    return ring_convolution(x, ring_kernel(kernel, future, ring_size(x.size(1))))


def problem(length, batch=2, width=WIDTH, columns=None):
    """A sequence, a ring with a value at every lag, and the gradient of the output."""
    generator = torch.Generator().manual_seed(length)
    ring = torch.randn(width, columns or ring_size(length), generator=generator) / length**0.5
    x, grad_y = torch.randn(2, batch, length, width, generator=generator)
    return x, ring, grad_y


def results(convolve, x, ring, grad_y):
    """Output and gradients by name."""
    x, ring = x.detach().requires_grad_(), ring.detach().requires_grad_()
    y = convolve(x, ring)
    return dict(zip(FACTORS, (y, *torch.autograd.grad(y, (x, ring), grad_y))))


def compare(device, x, ring, grad_y):
    """Run the kernels on tensors of the CPU with any strides and compare with float64."""
    # Moved as a whole, so that the strides stay.
    got = results(ring_convolution, x.to(device), ring.to(device), grad_y.to(device))
    assert got["y"].dtype == x.dtype and got["y"].is_contiguous()
    want = results(by_torch, x.double(), ring.double(), grad_y.double())
    if x.dtype == torch.float32:
        baseline = results(by_torch, x, ring, grad_y)
    else:  # torch has no FFT in these types: the exact results, rounded once
        baseline = {name: value.to(got[name].dtype) for name, value in want.items()}
    for name, factor in FACTORS.items():
        assert_close(name, got[name].cpu(), want[name], baseline[name], factor)


@with_kernels
@pytest.mark.parametrize("batch", [1, 2, 3])
@pytest.mark.parametrize("length", [1, 2, 3, 15, 16, 17, 31, 33, 100, 127, 128, 129, 257, 1000, 2048])
def test_equals_torch(kernel_device, length, batch):
    compare(kernel_device, *problem(length, batch))


@with_kernels
@pytest.mark.parametrize("length", [4095, 5000, LONGEST])
def test_long_sequences(kernel_device, length):
    """Those that are copied to have time as their last axis."""
    compare(kernel_device, *problem(length, batch=1, width=1 if length == LONGEST else 2))


@with_kernels
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("length", [1, 17, 100, 513, 4097])
def test_half_precision(kernel_device, length, dtype):
    x, ring, grad_y = problem(length)
    compare(kernel_device, x.to(dtype), ring, grad_y.to(dtype))


@with_kernels
@pytest.mark.parametrize(
    ("length", "batch", "width"),
    [
        (16, 700, 33),  # 32 channels to a block and one left over, several rows to a partial sum of the ring's gradient
        (100, 9, 65),  # 8 channels to a block and one left over
        (1000, 3, 9),
        (2048, 2, 5),  # 4 channels to a block
    ],
)
def test_many_channels_and_rows(kernel_device, length, batch, width):
    compare(kernel_device, *problem(length, batch, width))


@with_kernels
@pytest.mark.parametrize("columns", [32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384])
def test_rings_of_every_size(kernel_device, columns):
    """Also with sequences far shorter than the ring."""
    compare(kernel_device, *problem(min(11, columns // 2), columns=columns))
    compare(kernel_device, *problem(columns // 2 - 1, batch=1, columns=columns))


@with_kernels
@pytest.mark.parametrize("length", [20, 4100])
@pytest.mark.parametrize("layout", ["time last", "time first", "every second channel", "broadcast", "reversed batch"])
def test_strides(kernel_device, length, layout):
    x, ring, grad_y = problem(length, width=4)
    arrange = {
        "time last": lambda t: t.transpose(1, 2).contiguous().transpose(1, 2),
        "time first": lambda t: t.transpose(0, 1).contiguous().transpose(0, 1),
        "every second channel": lambda t: t.repeat_interleave(2, dim=-1)[..., ::2],
        "broadcast": lambda t: t[:1, :1].expand_as(t),
        "reversed batch": lambda t: t.transpose(0, 2).contiguous().transpose(0, 2),
    }[layout]
    arranged = arrange(x)
    assert not arranged.is_contiguous()
    compare(kernel_device, arranged, ring, grad_y)
    compare(kernel_device, x, ring, arrange(grad_y))
    compare(kernel_device, x, ring.t().contiguous().t(), grad_y)


@with_kernels
def test_rows_and_channels_do_not_touch(kernel_device):
    """No rounding error of a large row reaches a small one, and no NaN another row or channel."""
    x, ring, grad_y = problem(100, batch=3)
    x[0] *= 1e6
    got = results(ring_convolution, *(t.to(kernel_device) for t in (x, ring, grad_y)))["y"].cpu()
    alone = results(by_torch, x[1:].double(), ring.double(), grad_y[1:].double())["y"]
    assert_close("small rows", got[1:], alone)
    x[0, 5, 1] = float("nan")
    spoilt = results(ring_convolution, *(t.to(kernel_device) for t in (x, ring, grad_y)))["y"].cpu()
    assert spoilt[0, :, 1].isnan().all()
    assert torch.equal(spoilt[1:], got[1:]) and torch.equal(spoilt[0, :, ::2], got[0, :, ::2])


@with_kernels
def test_gradients_of_small_scale(kernel_device):
    """The ring's gradient keeps its digits where those of y are tiny beside x, as with a mean over many tokens."""
    x, ring, grad_y = (t.to(kernel_device) for t in problem(500))
    plain = results(ring_convolution, x, ring, grad_y)
    tiny = results(ring_convolution, x, ring, grad_y * 2.0**-30)
    for name in ("gradient of x", "gradient of ring"):
        torch.testing.assert_close(tiny[name] * 2.0**30, plain[name], rtol=0, atol=0, msg=name)


@with_kernels
def test_same_bits_every_time(kernel_device):
    tensors = [t.to(kernel_device) for t in problem(130, batch=40, width=9)]
    first, second = (results(ring_convolution, *tensors) for _ in range(2))
    for name, value in first.items():
        assert torch.equal(value, second[name]), name


@with_kernels
@pytest.mark.parametrize("shape", [(0, 5, 3), (2, 0, 3), (2, 5, 0)])
def test_nothing_to_do(kernel_device, shape):
    x = torch.zeros(shape, device=kernel_device)
    ring = torch.ones(shape[2], 32, device=kernel_device)
    got = results(ring_convolution, x, ring, x)
    assert got["y"].shape == x.shape == got["gradient of x"].shape
    assert torch.equal(got["gradient of ring"], torch.zeros_like(ring))


@with_kernels
@pytest.mark.parametrize("reach", [1, 4, 36])
@pytest.mark.parametrize("two_sided", [False, True])
def test_long_kernels(kernel_device, two_sided, reach):
    """Both ways, with kernels shorter than the sequence and as long, against the sum of the definition."""
    length = 37
    x = problem(length)[0]
    kernel, future = torch.randn(2, WIDTH, reach, generator=torch.Generator().manual_seed(1))
    inputs = {"x": x, "kernel": kernel, **({"future": future} if two_sided else {})}

    def by_definition(x, kernel, future=None):
        outputs = []
        for t in range(length):
            y = sum(kernel[:, j] * x[:, t - j] for j in range(min(reach, t + 1)))
            if future is not None:
                y = y + sum(future[:, j] * x[:, t + 1 + j] for j in range(min(reach, length - t - 1)))
            outputs.append(y)
        return torch.stack(outputs, 1)

    exact = leaves(inputs, torch.float64)
    y = by_definition(**exact)
    want = {"y": y, **gradients(y, exact)}
    for convolve, dtype, device in ((on_a_ring, torch.float32, kernel_device), (fft_convolution, torch.float64, "cpu")):
        moved = leaves({name: tensor.to(device) for name, tensor in inputs.items()}, dtype)
        y = convolve(moved["x"], moved["kernel"], moved.get("future"))
        for name, value in {"y": y, **gradients(y, moved)}.items():
            assert_close(name, value.cpu(), want[name])
