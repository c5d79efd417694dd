"""Linear maps with packed matrices: rounding, the kernel against the definition, and what is refused."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fairseq_mega.ops.common import native
from fairseq_mega.ops.packed_linear import KINDS, MOST_ROWS, PackedMatrix, pack, packed_linear, unpack
from tests.support.numerics import assert_close

needs_kernels = pytest.mark.skipif(native.PROBLEM is not None, reason=f"no compiled kernels: {native.PROBLEM}")


def matrix(outputs: int, inputs: int, seed: int = 1) -> Any:
    return torch.randn(outputs, inputs, generator=torch.Generator().manual_seed(seed))


def test_bf16_keeps_eight_bits():
    exact = matrix(7, 33)
    packed = pack(exact, "bf16")
    assert packed.data.dtype == torch.bfloat16 and packed.scale is None
    assert ((unpack(packed) - exact).abs() <= exact.abs() / 256).all()


def test_int8_is_the_nearest_multiple():
    exact = matrix(7, 33) * torch.logspace(-6, 6, 7).unsqueeze(1)  # rows of very different sizes
    packed: Any = pack(exact, "int8")
    assert packed.data.dtype == torch.int8 and packed.data.abs().amax() == 127
    assert ((unpack(packed) - exact).abs() <= 0.501 * packed.scale.unsqueeze(1)).all()
    assert torch.equal(packed.data.abs().amax(dim=1), torch.full((7,), 127, dtype=torch.int8))


@pytest.mark.parametrize("kind", KINDS)
def test_zeros_and_nothing(kind):
    assert torch.equal(unpack(pack(torch.zeros(3, 5), kind)), torch.zeros(3, 5))
    assert unpack(pack(torch.zeros(3, 0), kind)).shape == (3, 0)
    assert unpack(pack(torch.zeros(0, 5), kind)).shape == (0, 5)


@pytest.mark.usefixtures("cpu_level")
@needs_kernels
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kind", [*KINDS, None])
@pytest.mark.parametrize("shape", [(3, 0), (1, 1), (3, 5), (9, 17), (17, 64), (15, 130), (26, 515)])
def test_kernel_equals_the_definition(shape, kind, bias):
    """With packed matrices and with a plain one, for every number of rows that the kernel has a loop for."""
    packed = PackedMatrix(matrix(*shape), None) if kind is None else pack(matrix(*shape), kind)
    exact = packed.data.double() if kind is None else unpack(packed, torch.float64)
    addend = matrix(1, shape[0], seed=3)[0] if bias else None
    for rows in (0, 1, 2, 3, 4, 5, 6, 7, 8, 13, 37, MOST_ROWS, MOST_ROWS + 1):
        x = matrix(rows, shape[1], seed=2)
        want = F.linear(x.double(), exact, None if addend is None else addend.double())
        got = packed_linear(x, packed, addend, path="native")
        assert_close(f"output of {rows} rows", got, want, packed_linear(x, packed, addend, path="reference"))


@pytest.mark.usefixtures("cpu_level")
@needs_kernels
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize(
    ("size", "weights"), [*((size, 0.01) for size in (0.0, 1e-44, 1e-38, 1e-27, 1e-25, 1e25, 1e34)), (1e-30, 1e30)]
)
def test_inputs_of_any_size(size, weights, rows, kind):
    """Whatever one row holds, the others keep their precision.

    One row of an int8 matrix is multiplied in whole numbers, the tiniest and what is not finite in float32. The scale
    of a row comes last: before it, nothing is large.
    """
    x, packed = matrix(rows, 515, seed=2), pack(matrix(26, 515) * weights, kind)
    x[rows // 2] *= size
    x[rows // 2, ::7] *= 1e-4  # of which few bits are left
    want = F.linear(x.double(), unpack(packed, torch.float64))
    got, plain = (packed_linear(x, packed, path=path) for path in ("native", "reference"))
    for row in range(rows):
        assert_close(f"row {row}", got[row], want[row], plain[row])


@needs_kernels
def test_small_inputs_beside_a_large_one_are_rounded():
    """Not cut off, which would add up."""
    x = torch.full((1, 4001), 0.75)
    x[0, 0] = 2.0**30
    packed = PackedMatrix(torch.ones(1, 4001, dtype=torch.int8), torch.ones(1))
    packed.data[0, 0] = 0
    for sign in (1.0, -1.0):
        assert packed_linear(sign * x, packed, path="native").item() == pytest.approx(sign * 3000, abs=1e3 + 1)


@needs_kernels
@pytest.mark.parametrize(
    ("inputs", "value", "tolerance"),
    [
        *((inputs, 1.99, 1e-2) for inputs in (1 << 20, 1 << 21)),
        *((inputs, value, 1e-5) for inputs in (4031, 4033, 8100) for value in (1 + 2**-15, 2 - 2**-16, 2 - 2**-23)),
    ],
)
def test_the_largest_sums_of_one_row(inputs, value, tolerance):
    """Weights and inputs all of one size, of which a half, the lower one or the upper one, is the largest there is.

    Whole numbers stay within 32 bits; where they would not, float32 is taken, which rounds the longest sums 131,072
    times.
    """
    x = torch.full((1, inputs), value)
    data = torch.tensor([[127], [-127], [-128]], dtype=torch.int8).expand(3, inputs).contiguous()
    packed = PackedMatrix(data, torch.full((3,), 0.5))
    for sign in (1.0, -1.0):
        want = F.linear((sign * x).double(), unpack(packed, torch.float64))
        got = packed_linear(sign * x, packed, path="native").double()
        torch.testing.assert_close(got, want, rtol=tolerance, atol=0)


@needs_kernels
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_inputs_that_are_not_finite_come_through(value, kind):
    x, packed = matrix(3, 130, seed=2), pack(matrix(9, 130), kind)
    x[1, 77] = value
    got, want = (packed_linear(x, packed, path=path) for path in ("native", "reference"))
    torch.testing.assert_close(got, want, equal_nan=True)
    assert not got[1].isfinite().any() and got[::2].isfinite().all()
    torch.testing.assert_close(packed_linear(x[1:2], packed, path="native"), want[1:2], equal_nan=True)


@needs_kernels
def test_a_plain_matrix_that_learns_takes_the_reference():
    weight, x = matrix(4, 6).requires_grad_(), matrix(2, 6)
    packed_linear(x, PackedMatrix(weight, None)).sum().backward()
    torch.testing.assert_close(weight.grad, x.sum(0).expand(4, 6))
    with pytest.raises(RuntimeError, match="no gradients"):
        packed_linear(x, PackedMatrix(weight, None), path="native")


def test_float64_takes_the_reference():
    packed, x = pack(matrix(4, 6), "int8"), matrix(2, 6).double()
    assert packed_linear(x, packed).dtype == torch.float64
    if native.PROBLEM is None:
        with pytest.raises(TypeError, match="'native' computes float32, bfloat16 and float16, found"):
            packed_linear(x, packed, path="native")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("path", ["reference", pytest.param("native", marks=needs_kernels)])
def test_half_precision(path, kind, dtype):
    """Both paths multiply what is given in float32 at least and round once: one unit in the last place at most."""
    packed, x, bias = pack(matrix(26, 300), kind), matrix(3, 300, seed=2).to(dtype), matrix(1, 26)[0].to(dtype)
    want = F.linear(x.double(), unpack(packed, torch.float64), bias.double())
    got = packed_linear(x, packed, bias, path=path)
    assert got.dtype == dtype
    assert ((got - want).abs() <= 0.51 * torch.finfo(dtype).eps * want.abs() + 1e-4).all()


def test_gradients_flow_to_the_input():
    packed, x = pack(matrix(4, 6), "bf16"), matrix(2, 6).requires_grad_()
    packed_linear(x, packed).sum().backward()
    torch.testing.assert_close(x.grad, unpack(packed).sum(0).expand(2, 6))
    if native.PROBLEM is None:
        with pytest.raises(RuntimeError, match="no gradients"):
            packed_linear(x, packed, path="native")
