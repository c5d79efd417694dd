"""The contract of compiled operators: threads, strides and earlier calls change no result.

The files of the operators compare values with the definitions; here results are compared with each other.
"""

from functools import partial
from typing import Any, Callable, Dict, NamedTuple, Tuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_mega.ops.activation import silu
from fairseq_mega.ops.attention import attention
from fairseq_mega.ops.common import native
from fairseq_mega.ops.common.dispatch import OPERATORS, Operator
from fairseq_mega.ops.cross_entropy import cross_entropy
from fairseq_mega.ops.dropout import dropout
from fairseq_mega.ops.gate import gated_residual
from fairseq_mega.ops.linear import linear, linear_parts, silu_linear
from fairseq_mega.ops.norm import row_norm
from fairseq_mega.ops.packed_linear import pack, packed_linear
from fairseq_mega.ops.query_key import query_key
from fairseq_mega.ops.rotary import normalized_query_key
from fairseq_mega.ops.timestep_norm import TimestepNormState, timestep_norm
from tests.ops.calls import tensors_of
from tests.ops.ema_cases import run as run_ema
from tests.support import kernels
from tests.support.numerics import assert_independent_of_threads, gradients

BATCH, LENGTH, D, N = -1, -2, 32, 4
ROW = (BATCH, LENGTH, D)
EMA = {"x": ROW, **dict.fromkeys(("alpha", "delta", "beta", "eta"), (D, N))}
COMPLEX = dict.fromkeys(("theta", "eta_imag"), (D, N))
STATE = dict.fromkeys(("state", "state_imag"), (BATCH, D, N))
STATISTICS = dict.fromkeys(("mean", "variance"), (BATCH, 4))
COLUMNS = {"weight": (D,), "bias": (D,)}
MAP = {"x": ROW, "weight": (160, D), "bias": (160,)}


class Case(NamedTuple):
    """A call of an operator's kernels with tensors by name."""

    run: Callable[..., Any]
    shapes: Dict[str, Tuple[int, ...]]
    differentiable: bool = True

    def tensors(self, batch: int, length: int) -> Dict[str, Tensor]:
        """Draw the tensors."""
        generator, sizes = torch.Generator().manual_seed(1), {BATCH: batch, LENGTH: length}
        shapes = {name: [sizes.get(size, size) for size in shape] for name, shape in self.shapes.items()}
        return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}

    def results(self, inputs: Dict[str, Tensor]) -> Tuple[Tensor, Dict[str, Tensor]]:
        """Return all outputs in one tensor, and the inputs that have gradients."""
        torch.manual_seed(3)
        with torch.set_grad_enabled(self.differentiable):
            outputs = [out for out in tensors_of(self.run(**inputs)) if out.dtype != torch.int64]  # no counts
        floats = [torch.view_as_real(out) if out.is_complex() else out for out in outputs]
        return torch.cat([out.float().flatten() for out in floats]), inputs if self.differentiable else {}


def halves(tensors: Dict[str, Tensor]) -> Dict[str, Any]:
    return {name: tensor.bfloat16() for name, tensor in tensors.items()}


def losses(logits: Tensor) -> Any:
    return cross_entropy(logits.flatten(0, 1), torch.arange(logits[..., 0].numel()) % D, path="native")


def turned(x: Tensor, scale: Tensor, offset: Tensor) -> Any:
    return normalized_query_key(x, scale, offset, first=5, chunk_size=64, base=100.0, eps=1e-5, path="native")


def norm(x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, variance: Tensor) -> Any:
    state = TimestepNormState(torch.full((len(x),), 5, device=x.device), mean, variance.square() + 0.5)
    return timestep_norm(x, weight, bias, 4, state=state, path="native")


def streamed(**given: Tensor) -> Any:
    return run_ema(given, "native", return_state=True)


ON_GPUS = {
    "attention": Case(partial(attention, causal=True, path="native"), dict.fromkeys("qkv", ROW)),
    "dropping attention": Case(partial(attention, dropout=0.3, drop_key=0.2, path="native"), dict.fromkeys("qkv", ROW)),
    "ema": Case(streamed, {**EMA, "state": (BATCH, D, N)}),
    "complex ema": Case(streamed, {**EMA, **COMPLEX, **STATE}),
    "both directions": Case(
        lambda **given: run_ema(given, "native", bidirectional=True, truncation=9),
        {**dict.fromkeys(EMA, (2 * D, N)), "x": ROW},
    ),
    "timestep norm": Case(norm, {"x": ROW, **COLUMNS, **STATISTICS}),
    "gate": Case(
        partial(gated_residual, dropout=0.3, path="native"),
        dict.fromkeys(("residual", "update", "candidate", "addend"), ROW),
    ),
    "silu": Case(partial(silu, path="native"), {**dict.fromkeys(("x", "factor", "skip"), ROW), "omega": (D,)}),
    "query and key": Case(partial(query_key, path="native"), {"x": ROW, "kappa": (2, D), "mu": (2, D)}),
    "rotary": Case(turned, {"x": ROW, **dict.fromkeys(("scale", "offset"), (2, 2, D // 2))}),
    **{
        kind: Case(partial(row_norm, centred=centred, eps=1e-5, path="native"), {"x": ROW, **columns})
        for kind, centred, columns in (("layer norm", True, COLUMNS), ("rms norm", False, {"weight": (D,)}))
    },
}
CASES = {
    **ON_GPUS,
    "attention of groups": Case(partial(attention, causal=True, path="native_blocks"), dict.fromkeys("qkv", ROW)),
    "attention of groups in bfloat16": Case(
        lambda **given: attention(**halves(given), causal=True, path="native_blocks"), dict.fromkeys("qkv", ROW)
    ),
    "dropout": Case(lambda x: dropout(x, 0.3, path="native"), {"x": ROW}),
    "cross entropy": Case(losses, {"logits": ROW}),
    "linear": Case(partial(linear, path="native"), MAP),
    "linear in bfloat16": Case(lambda **given: linear(**halves(given), path="native"), MAP),
    "parts": Case(partial(linear_parts, widths=(64, 64, 32), path="native"), MAP),
    "silu linear": Case(partial(silu_linear, path="native"), {**MAP, "factor": ROW}),
    "packed": Case(
        lambda x, weight, bias: packed_linear(x, pack(weight, "int8"), bias, path="native"), MAP, differentiable=False
    ),
}
PLACES = [(name, "cpu") for name in CASES] + [(name, kind) for kind in kernels.KINDS[1:] for name in ON_GPUS]
needs_kernels = pytest.mark.skipif(native.PROBLEM is not None, reason=f"no compiled kernels: {native.PROBLEM}")
on_all_devices = pytest.mark.parametrize(("name", "kind"), PLACES)


def on_device(name: str, kind: str, batch: int, length: int, request: Any, monkeypatch: Any) -> Dict[str, Tensor]:
    device = kernels.select(kind, request, monkeypatch)
    found = {key: tensor.to(device) for key, tensor in CASES[name].tensors(batch, length).items()}
    return {key: tensor.requires_grad_(CASES[name].differentiable) for key, tensor in found.items()}


@needs_kernels
def test_every_operator_has_a_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """But single steps of decoding, which are tested with their layers."""
    called, choose = set(), Operator.choose

    def noted(self: Operator, *call: Any) -> str:
        called.add(self.name)
        return choose(self, *call)

    monkeypatch.setattr(Operator, "choose", noted)
    for case in CASES.values():
        case.results(case.tensors(2, 9))
    assert called == set(OPERATORS) - {"decoding"}


@needs_kernels
@pytest.mark.parametrize("name", CASES)
def test_any_number_of_threads_gives_the_same_bits(name: str) -> None:
    inputs = CASES[name].tensors(40, 75)
    given = {key: tensor.requires_grad_(CASES[name].differentiable) for key, tensor in inputs.items()}
    assert_independent_of_threads(lambda: CASES[name].results(given))


@on_all_devices
def test_a_second_call_gives_the_same_bits(name: str, kind: str, request: Any, monkeypatch: Any) -> None:
    inputs = on_device(name, kind, 3, 131, request, monkeypatch)
    first, second = ([out, *gradients(out, given).values()] for out, given in map(CASES[name].results, [inputs] * 2))
    assert all(torch.equal(one, other) for one, other in zip(first, second))


VIEWS: Dict[str, Callable[[Tensor], Tensor]] = {
    "columns first": lambda x: x.transpose(0, 1).contiguous().transpose(0, 1),
    "every second feature": lambda x: x.repeat_interleave(2, -1)[..., ::2],
    "every second step": lambda x: x.repeat_interleave(2, 1)[:, ::2],
    "part of wider rows": lambda x: F.pad(x, (3, 2))[..., 3:-2],
    "one row": lambda x: x[:1].expand_as(x),
}


@on_all_devices
def test_tensors_may_have_any_strides(name: str, kind: str, request: Any, monkeypatch: Any) -> None:
    """All of them in one way, and each with strides of its own."""
    case, inputs = CASES[name], on_device(name, kind, 3, 26, request, monkeypatch)
    matrices = [key for key, tensor in inputs.items() if tensor.dim() > 1]
    for view in VIEWS.values():
        for turned in (matrices, *([key] for key in matrices)):
            results = []
            for arrange in (view, lambda x, view=view: view(x).contiguous()):
                given = {key: arrange(tensor) if key in turned else tensor for key, tensor in inputs.items()}
                out, _ = case.results(given)
                results.append([out, *gradients(out, inputs if case.differentiable else {}).values()])
            for got, want in zip(*results):
                torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
