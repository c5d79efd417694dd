"""Linear maps, their parts and maps after a SiLU: the kernels against the definitions, and when they are taken."""

from typing import Any, Callable, Dict, NamedTuple, Tuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_mega.modules.linear import Linear
from fairseq_mega.ops import activation
from fairseq_mega.ops import linear as maps
from fairseq_mega.ops.common import native
from fairseq_mega.ops.linear import linear, linear_parts, silu_linear
from tests.support.kernels import select
from tests.support.numerics import (
    GRADIENT_FACTOR,
    assert_close,
    gradients,
    leaves,
)

needs_kernels = pytest.mark.skipif(native.PROBLEM is not None, reason=f"no compiled kernels: {native.PROBLEM}")
FLOATS = [torch.float32, torch.bfloat16]
# Rows, inputs, outputs: around blocks of 24 rows, panels of 32 columns, 256 rows that are summed over at once and 384
# outputs; then matrices that are packed in two parts.
SIZES = [(1, 1, 1), (23, 31, 2), (24, 32, 32), (25, 66, 34), (257, 17, 33), (513, 40, 70), (50, 34, 418), (40, 700, 64)]
SIZES += [(2, 2100, 1010), (25, 1010, 2100)]
PARTS = [(1, 1, (32, 1)), (25, 66, (64, 32, 33)), (257, 128, (128, 64, 256, 128)), (50, 34, (384, 32, 18))]
PARTS += [(24, 8, (7,)), (2, 2100, (512, 498)), (26, 40, (32, 32, 32, 32))]


class Map(NamedTuple):
    """A kernel with its definition; both get tensors by name and a view of x and factor."""

    kernel: Callable[..., Tensor]
    definition: Callable[..., Tensor]
    names: Tuple[str, ...] = ("x", "weight", "bias")

    def tensors(self, rows: int, inputs: int, outputs: int) -> Dict[str, Tensor]:
        sizes = {"x": (rows, inputs), "factor": (rows, inputs), "weight": (outputs, inputs), "bias": (outputs,)}
        generator = torch.Generator().manual_seed(1)
        draw = {name: torch.randn(size, generator=generator, dtype=torch.float64) for name, size in sizes.items()}
        return {name: draw[name] for name in self.names}


def parts_of(x: Tensor, weight: Tensor, bias: Any = None, widths: Any = None, path: str = "native") -> Tensor:
    """The parts of a map, again beside one another; panels of 32 columns and a rest."""
    widths = widths or (weight.size(0) - weight.size(0) % 32, weight.size(0) % 32)
    found = linear_parts(x, weight, bias, tuple(filter(None, widths)), path=path)
    assert all(part.is_contiguous() for part in found)
    return torch.cat(found, dim=-1)


def after_silu(x: Tensor, weight: Tensor, bias: Any = None, factor: Any = None, path: str = "native") -> Tensor:
    return silu_linear(x, factor, weight, bias, path=path)


def silu_defined(x: Tensor, weight: Tensor, bias: Any = None, factor: Any = None) -> Tensor:
    return F.linear(F.silu(x) if factor is None else factor * F.silu(x), weight, bias)


MAPS = {
    "linear": Map(lambda **tensors: linear(**tensors, path="native"), F.linear),
    "linear, no bias": Map(lambda **tensors: linear(**tensors, path="native"), F.linear, ("x", "weight")),
    "parts": Map(parts_of, F.linear),
    "silu": Map(after_silu, silu_defined),
    "scaled silu": Map(after_silu, silu_defined, ("x", "factor", "weight", "bias")),
}
each_map = pytest.mark.parametrize("kind", MAPS.values(), ids=list(MAPS))


def compare(
    plain: Dict[str, Tensor], dtype: torch.dtype, got: Callable[..., Tensor], definition: Callable[..., Tensor]
) -> None:
    """Outputs and gradients against float64; what is allowed is the definition's error in the same precision."""
    rounded = {name: tensor.to(dtype) for name, tensor in plain.items()}
    results = []
    for function, precision in ((got, dtype), (definition, torch.float64), (definition, dtype)):
        inputs = leaves(rounded, precision)
        out = function(**inputs)
        assert out.dtype == precision
        results.append((out, gradients(out, inputs)))
    (out, found), (want, exact), (baseline, usual) = results
    assert_close("output", out, want, baseline)
    for name in plain:
        assert found[name].dtype == dtype
        assert_close(f"gradient of {name}", found[name], exact[name], usual[name], GRADIENT_FACTOR)


@needs_kernels
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("size", SIZES, ids=str)
@each_map
def test_products_equal_the_definition(kind: Map, size: Any, dtype: torch.dtype, cpu_level: str) -> None:
    compare(kind.tensors(*size), dtype, kind.kernel, kind.definition)


@needs_kernels
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("case", PARTS, ids=str)
def test_parts_of_any_widths(case: Any, dtype: torch.dtype, cpu_level: str) -> None:
    rows, inputs, widths = case
    tensors = MAPS["parts"].tensors(rows, inputs, sum(widths))
    compare(tensors, dtype, lambda **given: parts_of(**given, widths=widths), F.linear)


AXES = (lambda x: x[0], lambda x: x[:0], lambda x: x.unflatten(0, (2, 1, -1)), lambda x: F.pad(x, (1, 2))[:, 1:-2])


@needs_kernels
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("axes", AXES)
@each_map
def test_any_axes(kind: Map, axes: Any, dtype: torch.dtype) -> None:
    """Rows of bfloat16 that lie apart too, which are read in pairs."""

    def of_views(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda **given: function(**{n: axes(t) if n in ("x", "factor") else t for n, t in given.items()})

    compare(kind.tensors(26, 18, 42), dtype, of_views(kind.kernel), of_views(kind.definition))


@needs_kernels
def test_sums_may_be_long() -> None:
    """Gradients of few rows and long sums."""
    x, weight = torch.randn(3, 5000, dtype=torch.float64), torch.randn(5000, 6, dtype=torch.float64).t()
    compare({"x": x, "weight": weight}, torch.float32, MAPS["linear"].kernel, F.linear)


def test_sums_are_rounded_as_torch_rounds(cpu_level: str) -> None:
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
@pytest.mark.parametrize("wanted", [("x",), ("weight",), ("bias",), ("x", "bias"), ("factor",)])
@each_map
def test_only_what_is_asked_for(kind: Map, wanted: Tuple[str, ...]) -> None:
    plain = {name: tensor.float() for name, tensor in kind.tensors(30, 20, 40).items()}
    over = [plain[name].requires_grad_() for name in wanted if name in plain]
    if over:
        found, want = (torch.autograd.grad(run(**plain).sum(), over) for run in (kind.kernel, kind.definition))
        torch.testing.assert_close(found, want)


@needs_kernels
def test_parts_that_nobody_uses_have_no_gradient() -> None:
    def second_of_parts(**inputs: Tensor) -> Tensor:
        return linear_parts(**inputs, widths=(32, 32, 32, 8), path="native")[1]

    tensors = MAPS["parts"].tensors(30, 20, 96 + 8)
    compare(tensors, torch.float32, second_of_parts, lambda **inputs: F.linear(**inputs)[:, 32:64])


@needs_kernels
def test_gradients_of_parts_are_not_copied_together() -> None:
    inputs, copies = leaves(MAPS["parts"].tensors(30, 20, 64), torch.float32), []
    for path in ("native", "reference"):
        with torch.profiler.profile() as profile:
            parts = linear_parts(**inputs, widths=(32, 32), path=path)
            torch.autograd.grad([part.sum() for part in parts], inputs["x"])
        copies.append(sum(event.count for event in profile.key_averages() if event.key == "aten::cat"))
    assert copies[0] == 0 < copies[1]


@needs_kernels
@each_map
def test_gradients_of_gradients(kind: Map) -> None:
    second = []
    for dtype, function in ((torch.float32, kind.kernel), (torch.float64, kind.definition)):
        inputs = leaves(kind.tensors(5, 4, 40), dtype)
        first = torch.autograd.grad(function(**inputs).square().sum(), list(inputs.values()), create_graph=True)
        second.append(torch.autograd.grad([g.square().sum() for g in first], list(inputs.values())))
    for got, want in zip(*second):
        assert_close("second gradient", got, want)


@needs_kernels
@each_map
def test_autocast_leaves_gradients_in_the_type_of_the_parameters(kind: Map) -> None:
    plain = {name: tensor.bfloat16() for name, tensor in kind.tensors(60, 34, 18).items()}
    inputs, exact = leaves(plain, torch.float32), leaves(plain, torch.float64)
    cast = {name: tensor.bfloat16() if name in ("x", "factor") else tensor for name, tensor in inputs.items()}
    with torch.autocast("cpu", torch.bfloat16):
        out = kind.kernel(**cast)
    want = kind.definition(**exact)
    assert out.dtype == torch.bfloat16
    assert_close("output", out, want)
    upstream = torch.randn(out.shape, generator=torch.Generator().manual_seed(3)).bfloat16()
    found = torch.autograd.grad(out, list(inputs.values()), upstream)
    expected = torch.autograd.grad(want, list(exact.values()), upstream.double())
    for name, got, exactly in zip(inputs, found, expected):
        assert got.dtype == torch.float32
        assert_close(f"gradient of {name}", got.bfloat16(), exactly)
        if name == "weight" and kind is MAPS["linear"]:  # sums are not rounded to bfloat16
            assert_close(f"gradient of {name}", got, exactly)


@pytest.mark.parametrize("kernels", ["simulator", "cuda"])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("names", [("x", "weight", "bias"), ("x", "weight")])
def test_a_gpu_joins_the_gradients_of_parts(kernels, dtype, names, request, monkeypatch) -> None:
    """Their second gradients, too; the gradients of parts are views, and one part has none."""
    device, joined = select(kernels, request, monkeypatch), []
    join = native.operators.join_parts

    def recorded(*call: Any) -> Any:
        joined.append(call)
        return join(*call)

    monkeypatch.setattr(activation, "adds_bias", lambda x: True)
    monkeypatch.setattr(native.operators, "join_parts", recorded, raising=False)
    tensors = MAPS["parts"].tensors(60, 20, 64)
    plain = {name: tensors[name].unflatten(0, (2, 30) if name == "x" else (-1,)) for name in names}

    def of_parts(**given: Tensor) -> Tensor:
        x, weight, bias = (given[name].to(device) if name in given else None for name in MAPS["parts"].names)
        assert x is not None and weight is not None
        first, second, _ = linear_parts(x, weight, bias, (31, 20, 13))
        return torch.cat((second, first), dim=-1).cpu()

    def of_columns(**given: Tensor) -> Tensor:
        return F.linear(**given)[..., [*range(31, 51), *range(31)]]

    compare(plain, dtype, of_parts, of_columns)
    assert len(joined) == 1
    second = []
    for precision, function in ((torch.float32, of_parts), (torch.float64, of_columns)):
        inputs = leaves(plain, precision)
        first = torch.autograd.grad(function(**inputs).square().sum(), list(inputs.values()), create_graph=True)
        second.append(torch.autograd.grad([g.square().sum() for g in first], list(inputs.values())))
    for got, want in zip(*second):
        assert_close("second gradient", got, want)


@pytest.mark.parametrize("widths", [(31, 33), (16, 16, 16, 8, 8)])
def test_parts_the_kernel_does_not_take_are_split_by_torch(widths: Tuple[int, ...]) -> None:
    inputs = leaves(MAPS["parts"].tensors(60, 20, 64), torch.float32)
    parts = linear_parts(**inputs, widths=widths, path="reference" if native.PROBLEM else "native")
    assert [part.size(-1) for part in parts] == list(widths)
    torch.testing.assert_close(torch.cat(parts, dim=-1), F.linear(**inputs))


def test_a_factor_of_another_shape_is_refused() -> None:
    """An equal number of elements is not enough."""
    inputs = leaves(MAPS["linear"].tensors(60, 34, 18), torch.float32)
    with pytest.raises(RuntimeError, match="shape|size"):
        silu_linear(inputs["x"], torch.ones(34, 60), inputs["weight"], inputs["bias"], path="auto")


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


@pytest.mark.parametrize("silu_path", ["reference", "auto"])
@pytest.mark.parametrize("autocast", [False, True])
def test_without_its_kernel_a_map_follows_the_silu(silu_path: str, autocast: bool, monkeypatch) -> None:
    """Another type than the one autocast multiplies in, and a SiLU that is to be PyTorch's."""
    monkeypatch.setenv("FAIRSEQ_MEGA_PATHS", f"activation={silu_path}")
    inputs = leaves(MAPS["scaled silu"].tensors(60, 34, 18), torch.float32)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        found, want = after_silu(**inputs, path="reference"), silu_defined(**inputs)
    torch.testing.assert_close(found, want, atol=2e-2, rtol=2e-2)


@needs_kernels
def test_modules_use_the_kernels_of_what_stands_beside_them(monkeypatch):
    called = []

    class Kernels:
        def __getattr__(self, name: str) -> Any:
            called.append(name)
            return getattr(torch.ops.fairseq_mega, name)

    monkeypatch.setattr(maps, "FAST_LINEAR", True)
    monkeypatch.setattr(native, "operators", Kernels())
    layer, other = Linear(256, 128), torch.nn.Linear(256, 128)
    other.load_state_dict(layer.state_dict())
    x, factor = torch.randn(2, 50, 256), torch.randn(2, 50, 256)
    for module, kernels in ((layer, ["linear_parts", "silu_linear"]), (other, ["silu"])):
        called.clear()
        first, second = maps.in_parts(module, x, (96, 32))
        torch.testing.assert_close(torch.cat((first, second), dim=-1), F.linear(x, layer.weight, layer.bias))
        joined = maps.after_silu(module, x, factor)
        torch.testing.assert_close(joined, F.linear(factor * F.silu(x), layer.weight, layer.bias))
        assert called == kernels
    called.clear()
    torch.testing.assert_close(layer(x), F.linear(x, layer.weight, layer.bias))
    layer(x[:, :1])
    assert called == ["linear"]  # of many rows


def test_another_width_is_an_error_of_python() -> None:
    with pytest.raises(RuntimeError, match="600x64 and 128x256"):
        linear(torch.ones(2, 300, 64), torch.ones(256, 128))
