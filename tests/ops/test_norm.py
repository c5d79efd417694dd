"""The kernels of layer and RMS norm against their formula: values and every gradient, kept or computed again."""

import pytest
import torch

from fairseq_mega.ops.common import native
from fairseq_mega.ops.common.recompute import recomputing
from fairseq_mega.ops.norm import row_norm
from tests.ops.test_activation import kept_bytes
from tests.support.numerics import GRADIENT_FACTOR, assert_close, gradients, leaves

pytestmark = pytest.mark.skipif(native.PROBLEM is not None, reason=f"no compiled kernels: {native.PROBLEM}")

EPS = 1e-5
SHAPES = [(1,), (7,), (2, 5, 9), (2, 3, 128), (300, 33), (0, 4), (1, 1, 16), (513, 16), (3, 130)]
COLUMNS = [(), ("weight",), ("weight", "bias")]


def tensors(shape, columns, scale=1.0, offset=0.0, seed=1):
    generator = torch.Generator().manual_seed(seed)
    draw = {"x": offset + scale * torch.randn(shape, generator=generator, dtype=torch.float64)}
    for name in columns:
        draw[name] = torch.randn(shape[-1], generator=generator, dtype=torch.float64)
    return draw


def literal(x, weight=None, bias=None, *, centred):
    """Straight from the definition."""
    distance = x - x.mean(-1, keepdim=True) if centred else x
    y = distance / torch.sqrt(distance.square().mean(-1, keepdim=True) + EPS)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def compare(plain, centred, dtype=torch.float32, columns=torch.float32, result=None):
    """Outputs and gradients of the kernels against float64; what is allowed is the reference's error."""
    rounded = {name: tensor.to(dtype if name == "x" else columns) for name, tensor in plain.items()}
    inputs = leaves(rounded, torch.float64)
    out = literal(**inputs, centred=centred)
    want = out, gradients(out.to(result or dtype), inputs)  # with weights rounded alike
    found = {}
    for path in ("reference", "native"):
        inputs = {name: tensor.clone().requires_grad_() for name, tensor in rounded.items()}
        out = row_norm(**inputs, centred=centred, eps=EPS, dtype=result, path=path)
        assert out.dtype == (result or dtype)
        found[path] = out, gradients(out, inputs)
    assert_close("output", found["native"][0], want[0], found["reference"][0])
    for name, tensor in rounded.items():
        got, baseline = found["native"][1][name], found["reference"][1][name]
        assert got.dtype == tensor.dtype, name
        assert_close(f"gradient of {name}", got, want[1][name], baseline, GRADIENT_FACTOR)


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("shape", SHAPES)
def test_kernels_equal_the_formula(cpu_level, shape, columns, centred):
    compare(tensors(shape, columns), centred)


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("columns", ["half", "float32"])
def test_half_precision_computes_in_float32(cpu_level, dtype, columns, centred):
    compare(tensors((5, 37), COLUMNS[-1]), centred, dtype, dtype if columns == "half" else torch.float32)


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("columns", COLUMNS)
def test_a_result_for_products_in_bfloat16(cpu_level, columns, centred):
    compare(tensors((5, 37), columns), centred, result=torch.bfloat16)


@pytest.mark.parametrize("centred", [False, True])
def test_rows_far_from_zero_and_rows_of_zeros(cpu_level, centred):
    compare(tensors((6, 40), COLUMNS[-1], offset=1000.0), centred)
    plain = tensors((4, 37), COLUMNS[-1])
    plain["x"][1:3] = 0.0
    compare(plain, centred)


def test_rows_may_lie_apart():
    wide = torch.randn(2, 6, 40, generator=torch.Generator().manual_seed(2))
    for view in (wide[..., 10:25], wide.transpose(0, 1), wide[:, ::2], wide[:, :1], wide[..., ::2]):
        for centred in (False, True):
            got, want = (row_norm(view, centred=centred, eps=EPS, path=path) for path in ("native", "reference"))
            torch.testing.assert_close(got, want)


@pytest.mark.parametrize("centred", [False, True])
def test_a_product_keeps_no_norm(centred):
    x = torch.randn(3, 100, 8, generator=torch.Generator().manual_seed(2)).requires_grad_()
    layer, scale = torch.nn.Linear(8, 8), torch.randn(8, requires_grad=True)
    found = []
    for call in (lambda function, x: function(x), recomputing):
        kept, out = kept_bytes(lambda: call(layer, row_norm(x, scale, centred=centred, eps=EPS)))  # noqa: B023
        found.append((kept, torch.autograd.grad(out.square().sum(), [x, scale, *layer.parameters()])))
    (before, wanted), (after, gained) = found
    assert after <= before - x.numel() * 4
    assert all(torch.equal(got, want) for got, want in zip(gained, wanted))
