"""The contract of operators on rows: outputs and every gradient of their kernels are those of the definitions."""

import functools
from typing import Any, Callable, Dict, NamedTuple, Tuple

import pytest
import torch

from fairseq_mega.lab.benchmarks import launches
from fairseq_mega.ops.activation import silu
from fairseq_mega.ops.common import native
from fairseq_mega.ops.gate import Addition, gated_residual
from fairseq_mega.ops.norm import norm_of_sum, row_norm
from fairseq_mega.ops.query_key import query_key
from tests.support import kernels
from tests.support.numerics import (
    GRADIENT_FACTOR,
    OUTPUT_FACTOR,
    assert_close,
    gradients,
    leaves,
)

pytestmark = pytest.mark.skipif(native.PROBLEM is not None, reason=f"no compiled kernels: {native.PROBLEM}")
EPS = 1e-5
COLUMNS = {"omega": (), "kappa": (2,), "mu": (2,), "weight": (), "bias": ()}  # axes before that of the features
HALVES = [torch.bfloat16, torch.float16]


class Rows(NamedTuple):
    """An operator and its definition; both get tensors by name, the operator also a path."""

    run: Callable[..., torch.Tensor]
    definition: Callable[..., torch.Tensor]
    names: Tuple[str, ...]


def silu_defined(x, factor=None, skip=None, omega=None):
    x = x if skip is None else x + omega * skip
    y = x / (1 + torch.exp(-x))
    return y if factor is None else factor * y


def query_key_defined(x, kappa, mu):
    shared = silu_defined(x)
    return torch.cat([kappa[0] * shared + mu[0], kappa[1] * shared + mu[1]], dim=-1)


def norm_defined(centred, origin):
    def definition(x, weight=None, bias=None):
        distance = x - x.mean(-1, keepdim=True) if centred else x
        y = distance / torch.sqrt(distance.square().mean(-1, keepdim=True) + EPS)
        y = y if weight is None else y * (weight + origin)
        return y if bias is None else y + bias

    return definition


def gate_defined(residual, update, candidate, addend=None):
    candidate = candidate if addend is None else silu_defined(candidate + addend)
    gate = 1 / (1 + torch.exp(-update))
    return gate * candidate + (1 - gate) * residual


def norm(centred, *names, origin=0.0):
    run = functools.partial(row_norm, centred=centred, eps=EPS, origin=origin)
    return Rows(run, norm_defined(centred, origin), ("x", *names))


GATE = ("residual", "update", "candidate", "addend")
OPERATORS: Dict[str, Rows] = {
    "silu": Rows(silu, silu_defined, ("x",)),
    "silu of a skip": Rows(silu, silu_defined, ("x", "skip", "omega")),
    "reset gate": Rows(silu, silu_defined, ("x", "factor")),
    "reset gate of a skip": Rows(silu, silu_defined, ("x", "factor", "skip", "omega")),
    "query and key": Rows(
        lambda **given: torch.cat(query_key(**given), dim=-1), query_key_defined, ("x", "kappa", "mu")
    ),
    "rms norm": norm(False),
    "scaled rms norm": norm(False, "weight"),
    "layer norm": norm(True),
    "scaled layer norm": norm(True, "weight", "bias"),
    "rms norm scaled from one": norm(False, "weight", origin=1.0),
    "layer norm scaled from one": norm(True, "weight", "bias", origin=1.0),
    "update gate": Rows(gated_residual, gate_defined, GATE[:3]),
    "update gate of a sum": Rows(gated_residual, gate_defined, GATE),
}
WHERE = [(name, place) for name in OPERATORS for place in kernels.KERNELS]
SHAPES = [(1,), (7,), (2, 5, 9), (2, 3, 128), (300, 33), (0, 4), (1, 1, 16), (513, 16), (3, 130), (5, 600)]


@pytest.fixture
def select(request, monkeypatch):
    return lambda place: kernels.select(place, request, monkeypatch)


def tensors(shape, names, scale=1.0, offset=0.0) -> Dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    sizes = {name: (*COLUMNS[name], shape[-1]) if name in COLUMNS else shape for name in names}
    return {
        name: scale * torch.randn(size, generator=generator, dtype=torch.float64) + offset * (name not in COLUMNS)
        for name, size in sizes.items()
    }


def compare(name, plain, device, dtype=torch.float32, others: Any = None, result: Any = None):
    """Outputs and gradients of the kernels against float64; what is allowed is the reference's error.

    Args:
        others: types of some tensors by name, in place of dtype.
        result: of a norm, None for the type of the first tensor.
    """
    operator, types = OPERATORS[name], others or {}
    options = {} if result is None else {"dtype": result}
    rounded = {key: tensor.to(types.get(key, dtype)) for key, tensor in plain.items()}
    results = []
    for path in ("exact", "reference", "native"):
        where = device if path == "native" else "cpu"
        inputs = {key: tensor.to(where).detach().requires_grad_() for key, tensor in rounded.items()}
        if path == "exact":
            inputs = leaves(rounded, torch.float64)
            out = operator.definition(**inputs)
        else:
            out = operator.run(**inputs, **options, path=path)
        kind = result or rounded[operator.names[0]].dtype
        assert path == "exact" or out.dtype == kind
        results.append((out, gradients(out.to(kind), inputs)))  # with weights rounded alike
    (want, exact), (baseline, usual), (got, found) = results
    assert_close("output", got.cpu(), want, baseline)
    for key, tensor in rounded.items():
        assert found[key].dtype == tensor.dtype, key
        assert_close(f"gradient of {key}", found[key].cpu(), exact[key], usual[key], GRADIENT_FACTOR)


@pytest.mark.parametrize(("name", "place"), WHERE)
@pytest.mark.parametrize("shape", SHAPES)
def test_equals_its_definition(name, place, shape, select):
    compare(name, tensors(shape, OPERATORS[name].names), select(place))


@pytest.mark.parametrize(("name", "place"), WHERE)
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("width", [37, 101])  # 101: several vectors at once, two single ones, and a part of one
def test_half_precision_computes_in_float32(name, place, dtype, wide, width, select):
    """Columns, or the gate's residual, may be float32, as under autocast."""
    others = dict.fromkeys((*COLUMNS, "residual"), torch.float32) if wide else {}
    compare(name, tensors((5, width), OPERATORS[name].names), select(place), dtype, others)


@pytest.mark.parametrize(("name", "place"), [pair for pair in WHERE if "norm" not in pair[0]])
@pytest.mark.parametrize("scale", [100.0, 1e4])
def test_extremes_stay_finite(name, place, scale, select):
    device, operator = select(place), OPERATORS[name]
    inputs = leaves({n: t.to(device) for n, t in tensors((4, 37), operator.names, scale).items()}, torch.float32)
    out = operator.run(**inputs, path="native")
    torch.testing.assert_close(out, operator.run(**inputs, path="reference"))
    for key, gradient in gradients(out, inputs).items():
        assert torch.isfinite(gradient).all(), key


VIEWS = (lambda t: t, lambda t: t.transpose(0, 1), lambda t: t[:, ::2], lambda t: t[:, :1], lambda t: t[..., ::2])


@pytest.mark.parametrize(("name", "place"), [(n, p) for n, p in WHERE if p in (kernels.CPU[-1], *kernels.KINDS)])
def test_rows_may_lie_apart(name, place, select):
    """All tensors in one way, and each with strides of its own."""
    device, operator = select(place), OPERATORS[name]
    wide = torch.randn(2, 6, 80, generator=torch.Generator().manual_seed(2)).to(device)
    parts = dict(zip([key for key in operator.names if key not in COLUMNS], wide.split(20, dim=-1)))
    for view in VIEWS:
        turned = {key: view(part) for key, part in parts.items()}
        width = next(iter(turned.values())).size(-1)
        columns = {k: torch.randn(*COLUMNS[k], width, device=device) for k in operator.names if k in COLUMNS}
        for apart in (None, *turned):
            given = {**turned, **columns, **({} if apart is None else {apart: turned[apart].contiguous()})}
            found, want = (operator.run(**given, path=path) for path in ("native", "reference"))
            torch.testing.assert_close(found, want)


@pytest.mark.parametrize(("name", "place"), [pair for pair in WHERE if "norm" in pair[0]])
def test_norms_into_bfloat16_and_of_rows_far_from_zero(name, place, select):
    device, names = select(place), OPERATORS[name].names
    compare(name, tensors((5, 37), names), device, result=torch.bfloat16)
    compare(name, tensors((6, 40), names, offset=1000.0), device)
    zeros = tensors((4, 37), names)
    zeros["x"][1:3] = 0.0
    compare(name, zeros, device)


@pytest.mark.parametrize("place", kernels.KINDS[1:])
def test_gpus_norm_rows_of_some_width(place, select):
    x = torch.randn(2, 4097, device=select(place))
    with pytest.raises(RuntimeError, match="4096 columns, found 4097"):
        row_norm(x, centred=True, eps=EPS, path="native")


@pytest.mark.parametrize("place", kernels.KINDS[1:])
@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize("keeps_sum", [True, False])
@pytest.mark.parametrize(("dtype", "products"), [(torch.float32,) * 2, (torch.float32, torch.bfloat16), HALVES[:1] * 2])
def test_a_sum_and_its_norm_in_one_kernel(place, gated, keeps_sum, dtype, products, select, monkeypatch):
    """As by the two operators, and as exact."""
    device, rows = select(place), ("update", "residual", "candidate", "addend")[1 - gated :]
    generator = torch.Generator().manual_seed(1)
    plain = {key: torch.randn(3, 5, 132, generator=generator).to(products) for key in rows}
    plain["residual"] = plain["residual"].to(dtype)
    plain.update({key: torch.randn(132, generator=generator) for key in ("weight", "bias", "gate_bias")})
    weights = torch.randn(2, 3, 5, 132, generator=generator).bfloat16().double()

    def run(inputs):
        added = Addition(*(inputs.get(key) for key in ("update", "candidate", "addend", "gate_bias")))
        norm = {"weight": inputs["weight"], "bias": inputs["bias"], "centred": True, "eps": EPS}
        out, other = norm_of_sum(inputs["residual"], added=added, keeps_sum=keeps_sum, dtype=products, **norm)
        fused = type(out.grad_fn).__name__ == "gated_residual_normBackward"
        if other is None and keeps_sum:
            other = row_norm(out, dtype=None if out.dtype == torch.float64 else products, **norm)
        elif other is None and dtype != products:
            other = out if out.dtype == torch.float64 else out.to(products)
        made = {"first": out, **({} if other is None else {"second": other})}
        loss = sum((result.double() * w.to(result.device)).sum() for result, w in zip(made.values(), weights))
        return fused, {**made, **dict(zip(inputs, torch.autograd.grad(loss, list(inputs.values()))))}

    exact = run(leaves(plain, torch.float64))[1]
    fused, got = run({key: tensor.detach().to(device).requires_grad_() for key, tensor in plain.items()})
    monkeypatch.setattr(native, "has_kernel", lambda *call: False)
    apart, baseline = run({key: tensor.detach().to(device).requires_grad_() for key, tensor in plain.items()})
    assert fused and not apart
    for key, want in exact.items():
        assert got[key].dtype == baseline[key].dtype
        factor = GRADIENT_FACTOR if key in plain else OUTPUT_FACTOR
        assert_close(key, got[key].cpu(), want, baseline[key].cpu(), factor)


@pytest.mark.parametrize(
    ("width", "operators"), [(4096, ["gated_residual_norm"]), (4097, ["gated_residual", "native_layer_norm"])]
)
def test_rows_too_wide_for_a_norm_on_a_gpu_are_added_apart(width, operators):
    x = launches.OnGpu(torch.empty(2, width, device="meta"))
    with launches.on_gpu(), launches.Launches() as found:
        _, other = norm_of_sum(x, added=Addition(None, x), keeps_sum=False, centred=True, eps=EPS)
    assert [launch.operator.split(".")[1] for launch in found.launched] == operators and other is None


def test_silu_of_any_number(cpu_level):
    """Errors are below 4e-7 of the result, or near the smallest normal number; infinities and NaN are the formula's."""
    far = torch.tensor([-float("inf"), -3e38, -1e4, -104.0, 104.0, 1e4, 3e38, float("inf"), float("nan")])
    x = torch.cat([far, torch.linspace(-95.0, 95.0, 4000), far]).requires_grad_()
    out, want = silu(x, path="native"), silu_defined(x.detach().double())
    torch.testing.assert_close(out.double(), want, rtol=4e-7, atol=2e-36, equal_nan=True)
    (gradient,) = torch.autograd.grad(out[9:-9].sum(), x)
    sigmoid = torch.sigmoid(x.detach().double())
    slope = (sigmoid * (1 + x.detach().double() * (1 - sigmoid)))[9:-9]
    torch.testing.assert_close(gradient[9:-9].double(), slope, rtol=4e-7, atol=1e-6)  # x (1 - s): 17 eps


@pytest.mark.parametrize("dtype", HALVES)
def test_the_gate_reads_and_rounds_halves_as_torch_does(cpu_level, dtype):
    """All finite numbers; half the way between two of them a gate of one half has to round, and to break ties."""
    patterns = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16).view(dtype)
    x = patterns[patterns.isfinite()]
    closed = torch.full_like(x, -1e4)
    assert torch.equal(gated_residual(x, closed, torch.zeros_like(x), path="native"), x)
    for step in (1, 3):
        y = x.roll(step)
        want = (x.float() + 0.5 * (y.float() - x.float())).to(dtype)
        got = gated_residual(x, torch.zeros_like(x), y, path="native")
        finite = want.isfinite() & (y.float() - x.float()).isfinite()
        assert torch.equal(got[finite], want[finite]) and finite.sum() > 60000
