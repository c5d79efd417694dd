"""The compiled attention kernels against the written-out formula: values and every gradient."""

import pytest
import torch

from fairseq_mega.ops.attention import FUNCTIONS, attention, chunked_attention, native_backward
from fairseq_mega.ops.attention import native as kernels
from tests.ops.attention_cases import block_size, compare, padding, tensors
from tests.support.numerics import OUTPUT_FACTOR, assert_close, gradients, leaves

__all__ = ["block_size"]  # a fixture

# Causal shapes need as many keys as queries. Row lengths around a warp's and a block's number of threads.
SHAPES = [(1, 1), (1, 7), (3, 7), (37, 37), (128, 128), (129, 129), (300, 300), (19, 50)]
LONG_ROWS = [(3, 256), (3, 257), (2, 1024), (2, 1025), (3, 4097), (2, 8193)]


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("side", [None, "right", "left"])
@pytest.mark.parametrize("shape", SHAPES)
def test_equals_reference(kernel_device, block_size, function, causal, side, shape):
    batch = (3,) if shape[0] < 100 else (2,)
    queries, keys = shape
    inputs = tensors(queries, keys, batch)
    compare(inputs, "native", kernel_device, mask=padding(batch, keys, side), function=function, causal=causal)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", LONG_ROWS)
def test_long_rows(kernel_device, function, causal, shape):
    inputs = tensors(*shape)
    compare(inputs, "native", kernel_device, mask=padding((2,), shape[1], "right"), function=function, causal=causal)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_many_groups(kernel_device, function):
    """More than the kernels sum apart for the bias's gradient."""
    mask = padding((131,), 5, "left")
    compare(tensors(5, 5, (131,)), "native", kernel_device, mask=mask, function=function, causal=True)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("leading", [(), (5,), (2, 3)])
def test_leading_dimensions_and_strides(kernel_device, function, leading):
    """Any number of leading dimensions; tensors that are not contiguous."""
    wide = torch.randn(*leading, 11, 20, device=kernel_device)
    q, k, v = wide[..., :4], wide[..., 4:8], wide[..., 8:]
    mask = torch.zeros(*leading, 11, dtype=torch.bool, device=kernel_device)
    mask[..., -1] = True
    options = {"function": function, "padding_mask": mask}
    out = attention(q, k, v, path="native", **options)
    torch.testing.assert_close(out, attention(q, k, v, path="reference", **options), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("side", ["right", "left"])
def test_masks_are_broadcast_and_a_bias_may_have_strides(kernel_device, side):
    inputs = {n: t.float().to(kernel_device) for n, t in tensors(11, 11, (2, 3)).items()}
    wide = torch.randn(2 * inputs["bias"].numel(), device=kernel_device)
    inputs["bias"] = wide[::2]
    mask = padding((2, 1), 11, side).to(kernel_device)
    out = attention(**inputs, padding_mask=mask, path="native")
    torch.testing.assert_close(out, attention(**inputs, padding_mask=mask, path="reference"), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("causal", [False, True])
def test_sixteen_bits(kernel_device, block_size, function, causal, dtype):
    inputs = {name: tensor.to(dtype).double() for name, tensor in tensors(45, 45).items()}
    compare(inputs, "native", kernel_device, dtype, padding((2,), 45, "right"), function=function, causal=causal)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_weights_of_sixteen_bits(kernel_device, block_size, function, dtype, monkeypatch, request):
    """Products of 16-bit factors give float32 logits, and weights have 16 bits, on GPUs and in the simulator."""
    if kernel_device.type == "cpu":  # whose products cannot mix types
        monkeypatch.setattr(kernels, "working_dtype", lambda q: q.dtype)
        for half in (kernels, native_backward):
            monkeypatch.setattr(half, "multiply", lambda a, b, out: out.copy_(torch.bmm(a.float(), b.float())))
    inputs = {name: tensor.to(dtype).double() for name, tensor in tensors(45, 45).items()}
    if request.node.callspec.params["kernel_device"] == "cpu":
        with pytest.raises(RuntimeError, match="on the CPU the weights replace the logits"):
            compare(inputs, "native", kernel_device, dtype, function=function)
        return
    compare(inputs, "native", kernel_device, dtype, padding((2,), 45, "right"), function=function, causal=True)


def test_autocast(kernel_device):
    """Types as torch's own products have them under autocast, and gradients in those of the inputs."""
    inputs = leaves({name: tensor.to(kernel_device) for name, tensor in tensors(9, 9).items()}, torch.float32)
    with torch.autocast(kernel_device.type, torch.bfloat16):
        out = attention(inputs["q"], inputs["k"], inputs["v"].bfloat16(), bias=inputs["bias"], path="native")
    assert out.dtype == torch.bfloat16
    want = attention(**{name: tensor.detach().double() for name, tensor in inputs.items()}, path="reference")
    assert_close("output", out, want)
    assert all(gradient.dtype == torch.float32 for gradient in gradients(out, inputs).values())


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [1, 3, 4, 5, 11, 32])
def test_chunks(kernel_device, function, causal, length):
    inputs = {name: tensor.float().to(kernel_device) for name, tensor in tensors(length, length).items()}
    inputs["bias"] = torch.randn(7, device=kernel_device)
    mask = padding((2,), length, "right").to(kernel_device)
    outputs = [
        chunked_attention(
            inputs["q"],
            inputs["k"],
            inputs["v"],
            4,
            function=function,
            bias=inputs["bias"],
            causal=causal,
            padding_mask=mask,
            path=path,
        )
        for path in ("native", "reference")
    ]
    torch.testing.assert_close(*outputs, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_nothing_to_attend_to_stays_finite(kernel_device, block_size, function):
    inputs = tensors(21, 21, (2,))
    mask = torch.ones(2, 21, dtype=torch.bool)
    mask[0, 4:] = False
    compare(inputs, "native", kernel_device, mask=mask, function=function, causal=True)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("level", [-1e4, 1e4])
@pytest.mark.parametrize("drop", [{}, {"dropout": 0.5}, {"drop_key": 0.5}])
def test_extreme_logits(kernel_device, function, level, drop):
    """All logits far from zero, with rows that end within a vector."""
    inputs = leaves({name: tensor.to(kernel_device) for name, tensor in tensors(13, 13).items()}, torch.float32)
    shifted = {**inputs, "q": inputs["q"] * 100, "bias": inputs["bias"] + level}
    out = attention(**shifted, function=function, causal=True, path="native", **drop)
    found = gradients(out, inputs)
    assert torch.isfinite(out).all()
    assert all(torch.isfinite(gradient).all() for gradient in found.values())
    if not drop:  # such logits have three decimals in float32, whoever computes them
        options = {"function": function, "causal": True, "path": "reference"}
        want = attention(**{name: tensor.double() for name, tensor in shifted.items()}, **options)
        error, usual = ((tensor - want).abs().max() for tensor in (out, attention(**shifted, **options)))
        assert error <= OUTPUT_FACTOR * usual + 1e-6 * want.abs().max()
