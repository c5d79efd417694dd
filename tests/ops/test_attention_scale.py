"""An explicit scale of the attention's products, on every path: values and every gradient."""

import math

import pytest
import torch

from fairseq_mega.ops.attention import FUNCTIONS, Options, attention, attention_weights, chunked_attention
from tests.ops.attention_cases import block_size, compare, padding, tensors

__all__ = ["block_size"]  # a fixture

SCALE = 0.37  # the tensors' own would be 1 / sqrt(8) for softmax


def without_tau(inputs, function, scale, causal, mask):
    """The definition for whole queries: tau is the formula's, so the queries take it back."""
    queries, keys = inputs["q"].size(-2), inputs["k"].size(-2)
    seen = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries if causal else keys)
    seen = seen & ~mask.unsqueeze(-2)
    tau = math.sqrt(inputs["q"].size(-1)) if function == "softmax" else seen.sum(-1, keepdim=True)
    options = {"function": function, "causal": causal, "padding_mask": mask, "path": "reference"}
    return attention(**{**inputs, "q": inputs["q"] * scale * tau}, **options)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scale", [SCALE, 1.0, 4])
def test_the_reference_takes_it_in_the_place_of_tau(function, causal, scale):
    inputs, mask = tensors(5, 7), padding((2,), 7)
    want = without_tau(inputs, function, scale, causal, mask)
    options = {"function": function, "causal": causal, "padding_mask": mask, "scale": scale}
    torch.testing.assert_close(attention(**inputs, path="reference", **options), want)
    weights = attention_weights(inputs["q"], inputs["k"], Options(bias=inputs["bias"], **options))
    torch.testing.assert_close(torch.matmul(weights, inputs["v"]), want)


@pytest.mark.parametrize("path", ["torch", "torch_blockwise"])
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("shape", [(1, 7), (5, 5), (40, 40)])
@pytest.mark.parametrize("side", [None, "left"])
def test_paths_of_torch(path, function, shape, side, monkeypatch):
    monkeypatch.setattr("fairseq_mega.ops.attention.DENSE_LIMIT", {"cpu": (1, 1)})  # blocks of 16 queries
    compare(tensors(*shape), path, mask=padding((2,), shape[1], side), function=function, causal=True, scale=SCALE)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("side", [None, "left"])
@pytest.mark.parametrize("shape", [(1, 7), (37, 37), (129, 129), (19, 50)])
def test_kernels(kernel_device, block_size, function, causal, side, shape):
    mask = padding((2,), shape[1], side)
    compare(tensors(*shape), "native", kernel_device, mask=mask, function=function, causal=causal, scale=SCALE)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_kernels_of_sixteen_bits(kernel_device, function, dtype):
    inputs = {name: tensor.to(dtype).double() for name, tensor in tensors(45, 45).items()}
    compare(inputs, "native", kernel_device, dtype, padding((2,), 45), function=function, causal=True, scale=SCALE)


@pytest.mark.parametrize("path", ["reference", "torch", "torch_blockwise", None])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_chunks(path, function):
    inputs = tensors(11, 11)
    bias = torch.randn(7, dtype=torch.float64)
    options = {"function": function, "causal": True, "scale": SCALE, "path": path}
    out = chunked_attention(inputs["q"], inputs["k"], inputs["v"], 4, bias=bias, **options)
    for start in (0, 4, 8):
        q, k, v = (inputs[name][:, start : start + 4] for name in "qkv")
        n = q.size(1)
        want = attention(q, k, v, bias=bias[4 - n : 3 + n], **{**options, "path": "reference"})
        torch.testing.assert_close(out[:, start : start + 4], want)
