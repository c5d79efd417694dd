"""Linear maps joined with a split of the result, or a SiLU before: the kernels against the definitions."""

import contextlib
from typing import Any, Callable, Dict

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_mega.modules.linear import Linear
from fairseq_mega.ops import linear as maps
from fairseq_mega.ops.common import native
from fairseq_mega.ops.linear import linear_parts, silu_linear
from tests.support.numerics import (
    GRADIENT_FACTOR,
    SPREADS,
    assert_close,
    assert_independent_of_threads,
    gradients,
    leaves,
)

needs_kernels = pytest.mark.skipif(native.PROBLEM is not None, reason=f"no compiled kernels: {native.PROBLEM}")
FLOATS = [torch.float32, torch.bfloat16]
# Rows, inputs, widths: around blocks of 24 rows, panels of 32, 256 rows summed at once and 384 outputs.
PARTS = [(1, 1, (32, 1)), (25, 66, (64, 32, 33)), (257, 128, (128, 64, 256, 128)), (50, 34, (384, 32, 18))]
PARTS += [(24, 8, (7,)), (2, 2100, (512, 498)), (26, 40, (32, 32, 32, 32))]
# Rows, inputs, outputs: the same borders, fewer and more outputs than inputs, and matrices packed in two parts.
SIZES = [(1, 1, 1), (23, 31, 2), (25, 66, 34), (257, 33, 17), (513, 40, 70), (50, 34, 418), (40, 700, 64)]
SIZES += [(2, 2100, 1010), (25, 1010, 2100)]


def numbers(**sizes: Any) -> Dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {name: torch.randn(size, generator=generator, dtype=torch.float64) for name, size in sizes.items()}


def map_of(rows: int, inputs: int, outputs: int, **others: Any) -> Dict[str, Tensor]:
    return numbers(x=(rows, inputs), weight=(outputs, inputs), bias=(outputs,), **others)


def silu_map(rows: int, inputs: int, outputs: int, scaled: bool = True) -> Dict[str, Tensor]:
    return map_of(rows, inputs, outputs, **({"factor": (rows, inputs)} if scaled else {}))


def defined(x: Tensor, weight: Tensor, bias: Tensor, factor: Any = None) -> Tensor:
    return F.linear(F.silu(x) if factor is None else factor * F.silu(x), weight, bias)


def compare(
    plain: Dict[str, Tensor], dtype: torch.dtype, got: Callable[..., Tensor], definition: Callable[..., Tensor]
) -> None:
    """Outputs and gradients against float64; what is allowed is the definition's error in the same precision."""
    rounded = {name: tensor.to(dtype) for name, tensor in plain.items()}
    results = []
    for function, kind in ((got, dtype), (definition, torch.float64), (definition, dtype)):
        inputs = leaves(rounded, kind)
        out = function(**inputs)
        assert out.dtype == kind
        results.append((out, gradients(out, inputs)))
    (out, found), (want, exact), (baseline, usual) = results
    assert_close("output", out, want, baseline)
    for name in plain:
        assert_close(f"gradient of {name}", found[name], exact[name], usual[name], GRADIENT_FACTOR)


@needs_kernels
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("case", PARTS, ids=str)
def test_parts_equal_the_split_map(case, dtype, cpu_level):
    rows, inputs, widths = case

    def parts(**tensors: Tensor) -> Tensor:
        found = linear_parts(**tensors, widths=widths, path="native")
        assert [tuple(part.shape) for part in found] == [(rows, width) for width in widths]
        assert all(part.is_contiguous() for part in found)
        return torch.cat(found, dim=-1)

    compare(map_of(rows, inputs, sum(widths)), dtype, parts, F.linear)


@needs_kernels
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_a_map_after_a_silu_equals_its_definition(size, scaled, dtype, cpu_level):
    rows, inputs, outputs = size
    compare(silu_map(rows, inputs, outputs, scaled), dtype, lambda **t: after_silu(t), defined)


def after_silu(tensors: Dict[str, Tensor], path: str = "native") -> Tensor:
    return silu_linear(tensors["x"], tensors.get("factor"), tensors["weight"], tensors["bias"], path=path)


@needs_kernels
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("spread", SPREADS)
def test_any_strides_and_axes(spread, dtype):
    def spread_out(x: Tensor, factor: Tensor, **others: Tensor) -> Dict[str, Tensor]:
        return {"x": spread(x), "factor": spread(factor), **others}

    compare(
        silu_map(26, 18, 12), dtype, lambda **t: after_silu(spread_out(**t)), lambda **t: defined(**spread_out(**t))
    )
    widths = (32, 10)
    compare(
        map_of(26, 18, 42),
        dtype,
        lambda x, weight, bias: torch.cat(linear_parts(spread(x), weight, bias, widths, path="native"), dim=-1),
        lambda x, weight, bias: F.linear(spread(x), weight, bias),
    )


@needs_kernels
def test_parts_that_nobody_uses_have_no_gradient():
    def second_of_parts(**inputs):
        return linear_parts(**inputs, widths=(32, 32, 32, 8), path="native")[1]

    def columns(**inputs):
        return F.linear(**inputs)[:, 32:64]

    compare(map_of(30, 20, 96 + 8), torch.float32, second_of_parts, columns)


@needs_kernels
def test_gradients_of_parts_are_not_copied_together():
    inputs = leaves(map_of(30, 20, 64), torch.float32)
    copies = []
    for path in ("native", "reference"):
        with torch.profiler.profile() as profile:
            parts = linear_parts(**inputs, widths=(32, 32), path=path)
            torch.autograd.grad([part.sum() for part in parts], inputs["x"])
        copies.append(sum(event.count for event in profile.key_averages() if event.key == "aten::cat"))
    assert copies[0] == 0 < copies[1]


@needs_kernels
def test_what_a_silu_makes_is_not_kept():
    inputs = leaves(silu_map(30, 20, 8), torch.float32)
    kept = set()

    def keep(tensor: Tensor) -> Tensor:
        kept.add(tensor.data_ptr())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        after_silu(inputs)
    assert kept == {inputs[name].data_ptr() for name in ("x", "factor", "weight")}


@needs_kernels
@pytest.mark.parametrize("wanted", [("x",), ("factor",), ("weight",), ("bias",), ("x", "bias")])
def test_only_what_is_asked_for(wanted):
    plain = {name: tensor.float() for name, tensor in silu_map(30, 20, 10).items()}
    for name in wanted:
        plain[name].requires_grad_()
    found = torch.autograd.grad(after_silu(plain).sum(), [plain[name] for name in wanted])
    want = torch.autograd.grad(defined(**plain).sum(), [plain[name] for name in wanted])
    for name, got, expected in zip(wanted, found, want):
        torch.testing.assert_close(got, expected, msg=name)


@needs_kernels
@pytest.mark.parametrize("scaled", [False, True])
def test_gradients_of_gradients(scaled):
    second = []
    for dtype, function in ((torch.float32, after_silu), (torch.float64, lambda tensors: defined(**tensors))):
        inputs = leaves(silu_map(5, 4, 3, scaled), dtype)
        first = torch.autograd.grad(function(inputs).square().sum(), list(inputs.values()), create_graph=True)
        second.append(torch.autograd.grad([g.square().sum() for g in first], list(inputs.values())))
    inputs, exact = (leaves(map_of(5, 4, 40), dtype) for dtype in (torch.float32, torch.float64))
    for values, out in (
        (inputs, torch.cat(linear_parts(**inputs, widths=(32, 8), path="native"), dim=-1)),
        (exact, F.linear(**exact)),
    ):
        first = torch.autograd.grad(out.square().sum(), list(values.values()), create_graph=True)
        second.append(torch.autograd.grad([g.square().sum() for g in first], list(values.values())))
    for got, want in [*zip(second[0], second[1]), *zip(second[2], second[3])]:
        assert_close("second gradient", got, want)


@needs_kernels
def test_results_do_not_depend_on_threads():
    def compute() -> Any:
        inputs = leaves(silu_map(700, 130, 330), torch.float32)
        parts = linear_parts(inputs["x"], inputs["weight"], None, (128, 64, 138), path="native")
        return after_silu(inputs) + torch.cat(parts, dim=-1), inputs

    assert_independent_of_threads(compute)


@needs_kernels
def test_autocast_leaves_gradients_in_the_type_of_the_parameters():
    inputs = leaves(silu_map(60, 34, 18), torch.float32)
    halves = {name: inputs[name].bfloat16() if name in ("x", "factor") else inputs[name] for name in inputs}
    exact = leaves({name: halves[name].bfloat16() for name in halves}, torch.float64)
    with torch.autocast("cpu", torch.bfloat16):
        out = after_silu(halves)
        parts = linear_parts(inputs["x"], inputs["weight"], None, (18,), path="native")
    assert out.dtype == parts[0].dtype == torch.bfloat16
    want = defined(**exact)
    assert_close("output", out, want)
    found = torch.autograd.grad(out.float().sum(), list(inputs.values()))
    expected = torch.autograd.grad(want.sum(), list(exact.values()))
    for name, got, exactly in zip(inputs, found, expected):
        assert got.dtype == torch.float32
        assert_close(f"gradient of {name}", got.bfloat16(), exactly)


@pytest.mark.parametrize("widths", [(31, 33), (16, 16, 16, 8, 8)])
def test_parts_the_kernel_does_not_take_are_split_by_torch(widths):
    inputs = leaves(map_of(60, 20, 64), torch.float32)
    parts = linear_parts(**inputs, widths=widths)
    assert [part.size(-1) for part in parts] == list(widths)
    torch.testing.assert_close(torch.cat(parts, dim=-1), F.linear(**inputs))


@pytest.mark.parametrize("silu_path", ["reference", "auto"])
def test_without_its_kernel_a_map_follows_the_silu(silu_path, monkeypatch):
    """Another type than the one autocast multiplies in, and a SiLU that is to be PyTorch's."""
    monkeypatch.setenv("FAIRSEQ_MEGA_PATHS", f"activation={silu_path}")
    inputs = leaves(silu_map(60, 34, 18), torch.float32)
    for cast in (contextlib.nullcontext(), torch.autocast("cpu", torch.bfloat16)):
        with cast:
            torch.testing.assert_close(after_silu(inputs, path="reference"), defined(**inputs), atol=2e-2, rtol=2e-2)


def test_a_factor_of_another_shape_is_refused():
    """An equal number of elements is not enough."""
    inputs = leaves(map_of(60, 34, 18), torch.float32)
    with pytest.raises(RuntimeError, match="shape|size"):
        silu_linear(inputs["x"], torch.ones(34, 60), inputs["weight"], inputs["bias"], path="auto")


@needs_kernels
def test_modules_join_what_stands_beside_them(monkeypatch):
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
