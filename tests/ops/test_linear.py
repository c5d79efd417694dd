"""Linear maps: the kernel against the definition, gradients included, and when it is taken."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fairseq_mega.modules.linear import Linear
from fairseq_mega.ops import linear as maps
from fairseq_mega.ops.common import native
from fairseq_mega.ops.linear import linear
from tests.support.numerics import (
    GRADIENT_FACTOR,
    SPREADS,
    assert_close,
    assert_independent_of_threads,
    gradients,
    leaves,
)

needs_kernels = pytest.mark.skipif(native.PROBLEM is not None, reason=f"no compiled kernels: {native.PROBLEM}")
# Around blocks of 24 rows, panels of 32 columns, 256 rows that are summed over at once and 384 outputs; then a matrix
# that is packed in two parts.
SIZES = [(1, 1, 1), (23, 31, 2), (24, 32, 32), (25, 66, 34), (257, 17, 33), (513, 40, 70), (50, 34, 418), (40, 700, 64)]
SIZES += [(2, 2100, 1010)]


def tensors(rows, inputs, outputs, bias=True, seed=1):
    generator = torch.Generator().manual_seed(seed)
    sizes = {"x": (rows, inputs), "weight": (outputs, inputs), "bias": (outputs,)}
    return {
        name: torch.randn(size, generator=generator, dtype=torch.float64)
        for name, size in sizes.items()
        if bias or name != "bias"
    }


def compare(plain, dtype=torch.float32, spread=lambda x: x):
    """Outputs and gradients of the kernel against float64; what is allowed is PyTorch's error."""
    rounded = {name: tensor.to(dtype) for name, tensor in plain.items()}
    results = {}
    for key, path, kind in (
        ("want", "reference", torch.float64),
        ("baseline", "reference", dtype),
        ("got", "native", dtype),
    ):
        inputs = leaves(rounded, kind)
        out = linear(spread(inputs["x"]), inputs["weight"], inputs.get("bias"), path=path)
        results[key] = out, gradients(out.to(dtype), inputs)
    got, want, baseline = (results[key] for key in ("got", "want", "baseline"))
    assert got[0].dtype == dtype
    assert_close("output", got[0], want[0], baseline[0])
    for name in plain:
        assert got[1][name].dtype == dtype
        assert_close(f"gradient of {name}", got[1][name], want[1][name], baseline[1][name], GRADIENT_FACTOR)


@needs_kernels
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", SIZES)
def test_products_equal_the_definition(size, dtype, bias):
    rows, inputs, outputs = size
    compare(tensors(rows, inputs, outputs, bias), dtype)


def test_sums_are_rounded_as_torch_rounds(cpu_level):
    """Any number, those below the normal ones too, which processors take for zero; the sums are of one product."""
    generator = torch.Generator().manual_seed(1)
    bits = torch.randint(-(1 << 31), 1 << 31, (3000,), generator=generator)
    ties, small = (bits | 0x8000) & ~0x7FFF, bits & ~0x7F000000 | 0x10000
    values = torch.cat([bits, ties, small]).to(torch.int32).view(torch.float32)
    (got,) = native.operators.linear(torch.ones(1, 1, dtype=torch.bfloat16), values.unsqueeze(1), None)
    want = values.bfloat16()
    assert (want.isnan() | (got.view(torch.int16) == want.view(torch.int16))).all()
    assert got[want.isnan()].isnan().all() and (want.abs().float() < 1e-38).sum() > 1000


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("spread", SPREADS)
def test_any_strides_and_axes(spread, dtype):
    compare(tensors(26, 18, 12), dtype, spread)


@needs_kernels
def test_the_weight_may_be_transposed_and_sums_long():
    """Gradients of few rows and long sums, and a matrix that is a view."""
    x, weight = torch.randn(3, 5000, dtype=torch.float64), torch.randn(5000, 6, dtype=torch.float64).t()
    compare({"x": x, "weight": weight})
    plain = tensors(3, 40, 6)
    got = linear(plain["x"].float(), plain["weight"].float().t().contiguous().t(), path="native")
    assert_close("output", got, F.linear(plain["x"], plain["weight"]))


@needs_kernels
@pytest.mark.parametrize("wanted", [("x",), ("weight",), ("bias",), ("x", "bias")])
def test_only_what_is_asked_for(wanted):
    plain = {name: tensor.float() for name, tensor in tensors(30, 20, 10).items()}
    for name in wanted:
        plain[name].requires_grad_()
    found = torch.autograd.grad(linear(**plain, path="native").sum(), [plain[name] for name in wanted])
    want = torch.autograd.grad(F.linear(**plain).sum(), [plain[name] for name in wanted])
    for name, got, expected in zip(wanted, found, want):
        torch.testing.assert_close(got, expected, msg=name)


@needs_kernels
def test_autocast_leaves_gradients_in_the_type_of_the_parameters():
    plain = tensors(60, 34, 18)
    rounded = {name: tensor.bfloat16() for name, tensor in plain.items()}
    exact = leaves({name: tensor.double() for name, tensor in rounded.items()}, torch.float64)
    want = F.linear(**exact)
    for path in ("reference", "native"):
        inputs = leaves(rounded, torch.float32)
        with torch.autocast("cpu", torch.bfloat16):
            out = linear(inputs["x"], inputs["weight"], inputs["bias"], path=path)
        assert out.dtype == torch.bfloat16
        assert_close("output", out, want)
        upstream = torch.randn(out.shape, generator=torch.Generator().manual_seed(3)).bfloat16()
        found = torch.autograd.grad(out, list(inputs.values()), upstream)
        expected = torch.autograd.grad(want, list(exact.values()), upstream.double(), retain_graph=True)
        for name, got, exactly in zip(plain, found, expected):
            assert got.dtype == torch.float32
            assert_close(f"gradient of {name}", got.bfloat16(), exactly)
        if path == "native":  # sums are not rounded to bfloat16
            assert_close("gradient of weight", found[1], expected[1])


@needs_kernels
def test_results_do_not_depend_on_threads():
    def compute() -> Any:
        inputs = leaves(tensors(700, 130, 330), torch.float32)
        return linear(**inputs, path="native"), inputs

    assert_independent_of_threads(compute)


@needs_kernels
def test_gradients_of_gradients():
    def square(x: Any, weight: Any, bias: Any) -> Any:
        return linear(x, weight, bias, path="native").square()

    inputs = leaves(tensors(5, 4, 3), torch.float32)
    exact = leaves(tensors(5, 4, 3), torch.float64)
    found = []
    for values, function in ((inputs, square), (exact, lambda x, weight, bias: F.linear(x, weight, bias).square())):
        first = torch.autograd.grad(function(**values).sum(), list(values.values()), create_graph=True)
        found.append(torch.autograd.grad([g.square().sum() for g in first], list(values.values())))
    for got, want in zip(*found):
        assert_close("second gradient", got, want)


def test_what_is_chosen(monkeypatch):
    monkeypatch.setattr(maps, "FAST_LINEAR", True)
    monkeypatch.setattr(maps, "FAST_HALF_LINEAR", False)
    monkeypatch.setattr(maps, "MULTIPLIES_BFLOAT16", True)
    monkeypatch.setattr(native, "PROBLEM", None)
    x, weight = torch.zeros(64, 256), torch.zeros(256, 256)
    assert maps.PATHS.choose(None, x, weight) == "native"
    assert maps.PATHS.choose(None, x[:8], weight) == "reference"
    assert maps.PATHS.choose(None, x.double(), weight.double()) == "reference"
    assert maps.PATHS.choose(None, x.bfloat16(), weight.bfloat16()) == "reference"
    assert maps.PATHS.choose(None, x.half(), weight.half()) == "reference"
    assert maps.PATHS.choose(None, x.to("meta"), weight.to("meta")) == "reference"
    monkeypatch.setattr(maps, "FAST_LINEAR", False)
    assert maps.PATHS.choose(None, x, weight) == "reference"
    monkeypatch.setattr(maps, "FAST_HALF_LINEAR", True)
    assert maps.PATHS.choose(None, x, weight) == "reference"
    assert maps.PATHS.choose(None, x.bfloat16(), weight) == "native"  # autocast leaves the weight as it is
    assert maps.PATHS.choose(None, x[:8].bfloat16(), weight) == "reference"
    assert maps.PATHS.choose(None, x[:, 1:].bfloat16(), weight[:, 1:]) == "reference"
    assert maps.PATHS.choose(None, x.bfloat16(), weight[1:]) == "reference"
    assert maps.PATHS.choose(None, x.half(), weight.half()) == "reference"
    monkeypatch.setattr(maps, "MULTIPLIES_BFLOAT16", False)
    assert maps.PATHS.choose(None, x[:3, 1:].bfloat16(), weight[:, 1:]) == "native"
    assert maps.PATHS.choose(None, x, weight) == "reference"


@needs_kernels
def test_modules_multiply_by_it(monkeypatch):
    called = []

    class Kernels:
        @staticmethod
        def linear(*arguments):
            called.append(1)
            return torch.ops.fairseq_mega.linear(*arguments)

    monkeypatch.setattr(maps, "FAST_LINEAR", True)
    monkeypatch.setattr(native, "operators", Kernels)
    layer, x = Linear(256, 128), torch.randn(2, 50, 256)
    torch.testing.assert_close(layer(x), F.linear(x, layer.weight, layer.bias))
    assert called == [1]
    layer(x[:, :1])
    assert called == [1]


@needs_kernels
def test_operations_in_registers_are_counted():
    once = native.operators.multiply_add_registers(1)
    assert once > 0 and native.operators.multiply_add_registers(1000) == 1000 * once
