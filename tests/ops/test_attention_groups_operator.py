"""The attention of whole groups as an operator: registration, compilation, the choice of its path, errors."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from fairseq_mega.ops import attention as ops
from fairseq_mega.ops.attention import FUNCTIONS, attention
from fairseq_mega.ops.attention.native_blocks import visible_counts
from fairseq_mega.ops.common import native
from tests.ops.attention_cases import tensors
from tests.support.numerics import leaves

pytestmark = pytest.mark.skipif(native.PROBLEM is not None, reason=f"no compiled kernels: {native.PROBLEM}")


def options(everything=True, function="softmax"):
    """Arguments after q, k, v and the bias, for 2 groups of 6 queries and keys."""
    padding = torch.zeros(2, 6, dtype=torch.bool)
    padding[0, -2:] = True
    tensors = (padding, visible_counts(padding, 6, True), torch.tensor(3)) if everything else (None, None, None)
    rates = (0.3, 0.2) if everything else (0.0, 0.0)
    return *tensors, FUNCTIONS.index(function), everything, 0.5, *rates


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("everything", [False, True])
def test_is_well_registered(function, everything):
    q, k, v, bias = leaves(tensors(6, 6), torch.float32).values()
    given = (q, k, v, bias if everything else None, *options(everything, function))
    torch.library.opcheck(native.operators.attention_groups.default, given)
    statistics = torch.rand(2, 6, 2)
    backward = (torch.randn(2, 6, 6), *given[:7], statistics, *given[7:])
    tests = ("test_schema", "test_faketensor")
    detached = tuple(value.detach() if isinstance(value, torch.Tensor) else value for value in backward)
    torch.library.opcheck(native.operators.attention_groups_backward.default, detached, test_utils=tests)


@pytest.mark.parametrize("biased", [False, True])
def test_recomputation_gives_the_same_gradients(biased):
    """A recomputed layer hands each saved tensor out once."""
    inputs = leaves(tensors(40, 40, (64,)), torch.float32)
    bias = inputs["bias"] if biased else None

    def run(q, k, v):
        return attention(q * 2, k, v, bias=bias, causal=True, path="native_blocks")

    known = [inputs[name] for name in ("q", "k", "v")]
    wanted = torch.autograd.grad(run(*known).sum(), known)
    found = torch.autograd.grad(checkpoint(run, *known, use_reentrant=False).sum(), known)
    for got, want in zip(found, wanted):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("path", ["native_blocks", None])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_compiles_as_one_graph(function, path):
    torch._dynamo.reset()
    inputs = leaves(tensors(40, 40, (64,)), torch.float32)

    def run(q, k, v, bias):
        return attention(q * 2, k, v, bias=bias, function=function, causal=True, path=path) + 1

    compiled = torch.compile(run, fullgraph=True, backend="aot_eager", dynamic=False)
    found, wanted = compiled(**inputs), run(**inputs)
    torch.testing.assert_close(found, wanted)
    for got, want in zip(*(torch.autograd.grad(out.sum(), list(inputs.values())) for out in (found, wanted))):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize(
    ("threads", "groups", "queries", "weights", "dtype", "path"),
    [
        (2, 2, 300, 1 << 20, torch.float32, "native_blocks"),
        (2, 1, 300, 1 << 20, torch.float32, "native"),  # fewer groups than threads
        (2, 2, 40, 1 << 20, torch.float16, "native"),
        (2, 2, 300, 1 << 20, torch.float64, "torch"),
        (2, 2, 4, 40, torch.float32, "native_blocks"),  # few queries, one of many sentences
        (1, 2, 4, 40, torch.float32, "torch"),
        (1, 2, 15, 1 << 20, torch.float32, "native"),
        (1, 2, 16, 1 << 20, torch.float32, "native_blocks"),
        (1, 2, 4, 40, torch.bfloat16, "native_blocks"),
        (1, 2, 3, 40, torch.bfloat16, "torch"),
        (1, 2, 4, 0, torch.bfloat16, "torch"),
        (1, 2, 40, 40, torch.float16, "torch"),
    ],
)
def test_where_it_is_chosen(threads, groups, queries, weights, dtype, path, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(ops, "FAST", True)
    q = torch.zeros(groups, queries, 4, dtype=dtype)
    assert ops.PATHS.choose("auto", q, weights) == path
    monkeypatch.setattr(ops, "FAST", False)
    assert ops.PATHS.choose("auto", q, weights) != "native_blocks"
