"""The attention of whole groups on the CPU: weights in parts, dropping, rounding, recomputation, and its choice."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from fairseq_mega.ops import attention as ops
from fairseq_mega.ops.attention import FUNCTIONS, attention
from fairseq_mega.ops.common import native
from tests.ops.attention_cases import compare, output_and_gradients, tensors
from tests.support.numerics import leaves

pytestmark = pytest.mark.skipif(native.PROBLEM is not None, reason=f"no compiled kernels: {native.PROBLEM}")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", [(1101, 1101), (67, 17001)])
def test_weights_that_are_kept_in_parts(dtype, causal, shape):
    """More of them than a thread keeps, so that gradients of keys and values are sums; the last part has few rows."""
    queries, keys = shape
    inputs = {name: tensor.to(dtype).double() for name, tensor in tensors(queries, keys, (1,), 2, 2).items()}
    compare(inputs, "native_blocks", dtype=dtype, function="laplace", causal=causal)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("rates", [(0.3, 0.0), (0.0, 0.3), (0.2, 0.3), (1.0, 0.0)])
def test_drops_what_the_other_kernels_drop(function, rates):
    """Those are compared with the formula under the same masks."""
    options = {"function": function, "causal": True, "dropout": rates[0], "drop_key": rates[1]}
    found = []
    for path in ("native_blocks", "native"):
        torch.manual_seed(5)
        found.append(output_and_gradients(tensors(70, 70), torch.float32, path, "cpu", None, **options))
    for name, want in found[1].items():
        torch.testing.assert_close(found[0][name], want, rtol=1e-4, atol=2e-5, msg=name)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_weights_are_rounded_to_the_nearest_bfloat16(cpu_level, function):
    """Read by attending to the rows of an identity matrix, and by gradients that are its rows."""
    inputs = {name: tensor.bfloat16() for name, tensor in tensors(64, 64, (2,)).items() if name != "v"}
    identity = torch.eye(64).expand(2, 64, 64)
    exact = {name: tensor.double() for name, tensor in inputs.items()}
    want = attention(**exact, v=identity.double(), function=function, path="reference")
    v = identity.bfloat16().requires_grad_()
    out = attention(**inputs, v=v, function=function, path="native_blocks")
    (gradient,) = torch.autograd.grad(out, v, identity.bfloat16())
    for found, weights in ((out, want), (gradient, want.transpose(1, 2))):
        assert ((found.double() - weights).abs() <= 2**-8 * 1.001 * weights + 1e-6).all()


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
        (1, 2, 300, 1 << 25, torch.float64, "torch_blockwise"),
    ],
)
def test_where_it_is_chosen(threads, groups, queries, weights, dtype, path, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(ops, "FAST", True)
    q = torch.zeros(groups, queries, 4, dtype=dtype)
    assert ops.PATHS.choose("auto", q, weights, 4) == path
    monkeypatch.setattr(ops, "FAST", False)
    assert ops.PATHS.choose("auto", q, weights, 4) != "native_blocks"
