"""Products under autocast to bfloat16 on processors that have no instruction for them."""

import math
from typing import Any, Callable, Dict, Iterator, Tuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_mega.ops import linear as maps
from fairseq_mega.ops.common import bfloat16, native
from fairseq_mega.ops.linear import linear, linear_parts, silu_linear
from tests.support.numerics import gradients, leaves

Call = Callable[..., Tensor]
# Operators, and the shapes of their tensors; what they compute with float32 is the definition.
CASES: Dict[str, Tuple[Call, Tuple[Tuple[int, ...], ...]]] = {
    "linear": (F.linear, ((7, 5), (6, 5), (6,))),
    "linear of one axis": (F.linear, ((5,), (6, 5), (6,))),
    "linear of four axes": (F.linear, ((2, 3, 4, 5), (6, 5), (6,))),
    "linear, no bias": (F.linear, ((2, 9, 5), (6, 5))),
    "matmul": (torch.matmul, ((7, 5), (5, 6))),
    "matmul, broadcast": (torch.matmul, ((3, 1, 7, 5), (2, 5, 6))),
    "matmul of a vector": (torch.matmul, ((7, 5), (5,))),
    "mm, transposed": (lambda a, b: a.t() @ b, ((5, 7), (5, 6))),
    "bmm": (torch.bmm, ((3, 7, 5), (3, 5, 6))),
    "addmm": (lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2.0), ((6,), (7, 5), (5, 6))),
    "baddbmm": (lambda c, a, b: torch.baddbmm(c, a, b, alpha=0.5), ((3, 7, 6), (3, 7, 5), (3, 5, 6))),
    "einsum": (lambda a, b: torch.einsum("bij,bkj->bik", a, b), ((3, 7, 5), (3, 6, 5))),
    "conv1d": (lambda x, w: F.conv1d(x, w, padding=1), ((2, 3, 9), (4, 3, 3))),
    "conv2d": (F.conv2d, ((2, 3, 8, 8), (4, 3, 2, 2), (4,))),
    "conv2d, same": (lambda x, w: F.conv2d(x, w, padding="same"), ((2, 3, 8, 8), (4, 3, 3, 3))),
    "attention": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), ((2, 2, 9, 4),) * 3),
}


@pytest.fixture
def without_instructions(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Replace products as on a processor without instructions for bfloat16."""
    monkeypatch.setattr(maps, "MULTIPLIES_BFLOAT16", False)
    library = bfloat16.replace_products() if bfloat16.MULTIPLIES_BFLOAT16 else None
    yield
    if library is not None:
        library._destroy()


def rounded(x: Tensor) -> Tensor:
    return x.bfloat16().float()


def inputs_of(shapes: Tuple[Tuple[int, ...], ...]) -> Dict[str, Any]:
    generator = torch.Generator().manual_seed(1)
    return leaves({str(n): torch.randn(shape, generator=generator) for n, shape in enumerate(shapes)}, torch.float32)


def compare(under_autocast: Call, definition: Call, inputs: Dict[str, Any]) -> None:
    """Outputs and gradients of a function of float32 under autocast, and of its definition, bit by bit."""
    want = definition(*map(rounded, inputs.values())).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        got = under_autocast(*inputs.values())
    assert got.dtype == torch.bfloat16 and torch.equal(got, want)
    found, expected = gradients(got, inputs), gradients(want, inputs)
    for name in inputs:
        assert torch.equal(found[name], expected[name]), f"gradient of {name}"


@pytest.mark.parametrize("case", CASES)
def test_products_are_of_rounded_operands_in_float32(case: str, without_instructions: None) -> None:
    function, shapes = CASES[case]
    compare(function, function, inputs_of(shapes))


def test_other_numbers_are_left_alone(without_instructions: None) -> None:
    x, weight = torch.randn(7, 5), torch.randn(6, 5)
    want = F.linear(x.double(), weight.double())
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(F.linear(x.double(), weight.double()), want)
        with torch.autocast("cpu", enabled=False):
            assert F.linear(x, weight).dtype == torch.float32
    with torch.autocast("cpu", torch.float16):
        assert F.linear(x, weight).dtype == torch.float16
    assert F.linear(x, weight).dtype == torch.float32


def test_gradients_of_gradients(without_instructions: None) -> None:
    x, weight = (tensor.requires_grad_() for tensor in (torch.randn(7, 5), torch.randn(6, 5)))
    found = []
    for bf16 in (True, False):
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            y = F.linear(x, weight) if bf16 else F.linear(rounded(x), rounded(weight)).bfloat16()
        (first,) = torch.autograd.grad(y.float().square().sum(), x, create_graph=True)
        found.append(torch.autograd.grad(first.square().sum(), weight)[0])
    assert torch.equal(*found) and found[0].abs().sum() > 0


@pytest.mark.skipif(not hasattr(torch.library, "get_kernel"), reason="PyTorch before 2.9 hands out no kernel")
@pytest.mark.parametrize("rows", [1, bfloat16.FEW])
def test_few_rows_keep_the_matrix_that_autocast_keeps(rows: int, without_instructions: None) -> None:
    layer, x = torch.nn.Linear(2000, 2000, bias=False), torch.randn(rows, 2000)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        first = layer(x)
        layer.weight.data.zero_()
        assert torch.equal(layer(x), first)  # autocast's own copy lives until its block ends
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        assert not layer(x).any()


# Whole numbers whose sums are exact in any order; the weights are exact in float32 alone.
def exact(*shape: int, fraction: float = 0.0) -> Tensor:
    generator = torch.Generator().manual_seed(math.prod(shape))
    return torch.randint(-8, 9, shape, generator=generator) * (1.0 + fraction)


@pytest.mark.parametrize("rows, inputs, outputs", [(3, 16, 8), (25, 33, 66), (49, 64, 35), (300, 8, 40)])
def test_the_kernel_rounds_the_weight_at_every_level(rows: int, inputs: int, outputs: int, cpu_level: str) -> None:
    x, weight = exact(rows, inputs), exact(outputs, inputs, fraction=2**-12)
    assert not torch.equal(rounded(weight), weight)
    given = leaves({"x": x, "weight": weight}, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        got = linear(given["x"], given["weight"], path="native")
    assert torch.equal(got, F.linear(x, rounded(weight)).bfloat16())
    upstream = exact(rows, outputs)
    found = torch.autograd.grad(got, list(given.values()), upstream.bfloat16())
    assert torch.equal(found[0], rounded(upstream @ rounded(weight)))
    assert torch.equal(found[1], upstream.t() @ x)  # of a parameter: not rounded


@pytest.mark.skipif(native.PROBLEM is not None, reason=f"no compiled kernels: {native.PROBLEM}")
@pytest.mark.parametrize("rows", [bfloat16.FEW + 1, maps.FEWEST_ROWS, 500])
def test_layers_multiply_by_the_kernel(rows: int, without_instructions: None, monkeypatch: pytest.MonkeyPatch) -> None:
    called = []

    class Kernels:
        def __getattr__(self, name: str) -> Any:
            called.append(name)
            return getattr(torch.ops.fairseq_mega, name)

    monkeypatch.setattr(native, "operators", Kernels())
    x, weight = torch.randn(rows, 33), torch.randn(64, 33)
    monkeypatch.setattr(maps, "FAST_LINEAR", False)  # AVX-512 has a kernel for float32 too
    linear(x, weight)
    assert called == []  # float32 is as before
    with torch.autocast("cpu", torch.bfloat16):
        y = linear(x, weight)
        linear_parts(x, weight, None, (32, 32))
        silu_linear(x.bfloat16(), None, weight)
        assert called == ["linear", "linear_parts", "silu_linear"]
        linear(x[: bfloat16.FEW], weight)
        assert called == ["linear", "linear_parts", "silu_linear"]
    torch.testing.assert_close(y, F.linear(rounded(x), rounded(weight)).bfloat16())


def test_what_the_processor_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "PROBLEM", None)
    for machine, level, by_torch, want in (
        ("x86_64", "avx512_bf16", True, True),
        ("x86_64", "avx512_bf16", False, False),  # oneDNN is held back
        ("x86_64", "avx512", True, False),
        ("x86_64", "avx2", False, False),
        ("aarch64", "baseline", True, True),
        ("aarch64", "baseline", False, False),
    ):
        monkeypatch.setattr(bfloat16.platform, "machine", lambda machine=machine: machine)
        monkeypatch.setattr(native, "reaches", lambda least, level=level: level == least)
        monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda by_torch=by_torch: by_torch)
        assert bfloat16.multiplies_bfloat16() == want, (machine, level, by_torch)
