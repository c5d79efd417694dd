"""The contract of attention's paths: values and every gradient are those of the written-out formula in float64."""

import pytest
import torch

from fairseq_mega.ops import attention as ops
from fairseq_mega.ops.attention import FUNCTIONS, attention, chunked_attention
from tests.ops.attention_cases import compare, padding, small_blocks, tensors, weights_of_sixteen_bits
from tests.support.kernels import CPU, KERNELS, select, select_triton
from tests.support.numerics import OUTPUT_FACTOR, assert_close, gradients, leaves

SCALE = 0.37  # in the place of tau; the tensors' own would be 1 / sqrt(8) for softmax
# Around a pair, a tile's rows, a panel's 32, a block's 64 rows, a warp's and a block's number of threads.
SHAPES = [(1, 1), (1, 7), (3, 7), (12, 13), (33, 33), (63, 65), (129, 129), (300, 300), (19, 250)]
LONG_ROWS = [(3, 256), (3, 257), (2, 1024), (2, 1025), (3, 4097), (2, 8193)]
WIDTHS = [(8, 6), (5, 7), (33, 70), (32, 64)]  # z, v; odd ones are no pairs of bfloat16
TORCH = ["torch", "torch_blockwise"]
NATIVE = [f"native-{kernel}{blocks}" for kernel in KERNELS for blocks in ("", "-small")]
NATIVE += [f"native_blocks-{level}" for level in CPU]
KERNEL = [*NATIVE, "triton"]


@pytest.fixture
def choose(request, monkeypatch):
    """Return the path and the device of a name such as native-cpu-avx2-small: of blocks of few queries."""

    def chosen(name):
        path, _, which = name.partition("-")
        if path in TORCH:
            monkeypatch.setattr(ops, "DENSE_LIMIT", {"cpu": (1, 1), "cuda": (1, 1)})  # blocks of 16 queries
            return path, torch.device("cpu")
        if path == "triton":
            return path, select_triton(request, monkeypatch)
        kernel, small = which.removesuffix("-small"), which.endswith("-small")
        if small:
            small_blocks(monkeypatch)
        torch.use_deterministic_algorithms(True, warn_only=True)  # NaN in what the extension allocates
        request.addfinalizer(lambda: torch.use_deterministic_algorithms(False))
        return path, select(kernel, request, monkeypatch)

    return chosen


@pytest.fixture(params=[*TORCH, *KERNEL])
def any_path(request, choose):
    return choose(request.param)


@pytest.fixture(params=KERNEL)
def kernel(request, choose):
    return choose(request.param)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("side", [None, "right", "left"])
@pytest.mark.parametrize("variant", ["bias", "no bias", "scale"])
@pytest.mark.parametrize("shape", SHAPES)
def test_equals_the_formula(any_path, function, causal, side, variant, shape):
    path, device = any_path
    if path == "triton" and shape == (1, 1):  # gradients of exactly zero, here a difference of two equal sums
        shape = (2, 2)
    batch, scale = (3,) if shape[0] < 100 else (2,), SCALE if variant == "scale" else None
    inputs = tensors(shape[0], shape[1], batch)
    if variant == "no bias":
        del inputs["bias"]
    mask = padding(batch, shape[1], side)
    compare(inputs, path, device, mask=mask, function=function, causal=causal, scale=scale)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", LONG_ROWS)
def test_long_rows(kernel, function, causal, shape):
    path, device = kernel
    compare(tensors(*shape), path, device, mask=padding((2,), shape[1]), function=function, causal=causal)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_many_groups(kernel, function):
    """More than the kernels sum apart for the bias's gradient."""
    path, device = kernel
    compare(tensors(5, 5, (131,)), path, device, mask=padding((131,), 5, "left"), function=function, causal=True)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("widths", WIDTHS)
@pytest.mark.parametrize("shape", [(20, 75), (45, 45), (150, 163)])
@pytest.mark.parametrize("causal", [False, True])
def test_sixteen_bits_and_widths(kernel, function, dtype, widths, shape, causal):
    """Pairs of queries, of which the first key of a panel is seen by the second one only."""
    path, device = kernel
    (queries, keys), (z, v) = shape, widths
    inputs = {name: tensor.to(dtype).double() for name, tensor in tensors(queries, keys, (2,), z, v).items()}
    scale = SCALE if dtype == torch.float16 else None
    compare(inputs, path, device, dtype, padding((2,), keys), function=function, causal=causal, scale=scale)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("name", [name for name in NATIVE if name.startswith("native-")])
def test_products_of_sixteen_bits(choose, name, function, dtype, monkeypatch):
    """Products of 16-bit factors give float32 logits, and weights have 16 bits, on GPUs and in the simulator."""
    path, device = choose(name)
    if device.type == "cpu":  # whose products cannot mix types
        weights_of_sixteen_bits(monkeypatch)
    inputs = {name: tensor.to(dtype).double() for name, tensor in tensors(45, 45).items()}
    if "-cpu" in name:
        with pytest.raises(RuntimeError, match="on the CPU the weights replace the logits"):
            compare(inputs, path, device, dtype, function=function)
        return
    compare(inputs, path, device, dtype, padding((2,), 45), function=function, causal=True)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("leading", [(), (5,), (2, 3)])
@pytest.mark.parametrize("side", ["right", "left"])
def test_any_leading_axes_and_strides(any_path, function, leading, side):
    """Tensors that are not contiguous, and masks that are broadcast."""
    path, device = any_path
    wide = torch.randn(*leading, 11, 20, device=device)
    q, k, v = wide[..., :4], wide[..., 4:8], wide[..., 8:]
    mask = torch.zeros(*leading[:-1], 1, 11, dtype=torch.bool) if leading else torch.zeros(11, dtype=torch.bool)
    mask[..., -2:] = side == "right"
    mask[..., :2] |= side == "left"
    options = {"function": function, "padding_mask": mask.to(device), "bias": torch.randn(42, device=device)[::2]}
    out = attention(q, k, v, path=path, **options)
    torch.testing.assert_close(out, attention(q, k, v, path="reference", **options), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("length", "chunk"), [(1, 4), (3, 4), (4, 4), (5, 4), (11, 4), (32, 4), (63, 64), (150, 64)])
def test_chunks_are_separate_attentions(any_path, function, causal, length, chunk):
    path, device = any_path
    inputs, bias = tensors(length, length), torch.randn(2 * chunk - 1)
    mask, scale = padding((2,), length).to(device), SCALE if length % 2 else None
    q, k, v = (inputs[name].float().to(device) for name in "qkv")
    options = {"function": function, "causal": causal, "scale": scale}
    out = chunked_attention(q, k, v, chunk, bias=bias.to(device), padding_mask=mask, path=path, **options)
    exact = {name: tensor.to(device) for name, tensor in inputs.items()}
    for start in range(0, length, chunk):
        piece = slice(start, min(start + chunk, length))
        n, (q, k, v) = piece.stop - start, (exact[name][:, piece] for name in "qkv")
        own = {"bias": bias[chunk - n : chunk + n - 1].to(q), "padding_mask": mask[:, piece], "path": "reference"}
        assert_close(f"chunk at {start}", out[:, piece], attention(q, k, v, **own, **options))


def test_the_last_queries_attend_within_their_chunks(any_path):
    path, device = any_path
    q, k, v = (tensors(11, 11)[name].float().to(device) for name in "qkv")
    whole = chunked_attention(q, k, v, 4, causal=True, path=path)
    for last in (1, 3, 5, 10):
        found = chunked_attention(q[:, -last:], k, v, 4, causal=True, path=path)
        torch.testing.assert_close(found, whole[:, -last:])


@pytest.mark.parametrize("function", FUNCTIONS)
def test_nothing_to_attend_to_stays_finite(any_path, function):
    path, device = any_path
    mask = torch.ones(2, 41, dtype=torch.bool)
    mask[0, 4:] = False
    compare(tensors(41, 41), path, device, mask=mask, function=function, causal=True)


def test_autocast_and_mixed_types(any_path):
    """Types as torch's own products have them under autocast, and gradients in those of the inputs."""
    path, device = any_path
    inputs = leaves({name: tensor.to(device) for name, tensor in tensors(40, 40).items()}, torch.float32)
    with torch.autocast(device.type, torch.bfloat16):
        out = attention(inputs["q"], inputs["k"], inputs["v"].bfloat16(), bias=inputs["bias"], path=path)
    assert out.dtype == torch.bfloat16
    want = attention(**{name: tensor.detach().double() for name, tensor in inputs.items()}, path="reference")
    assert_close("output", out, want)
    assert all(gradient.dtype == torch.float32 for gradient in gradients(out, inputs).values())


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("level", [-1e4, 1e4])
@pytest.mark.parametrize("drop", [{}, {"dropout": 0.5}, {"drop_key": 0.5}])
def test_extreme_logits(kernel, function, level, drop):
    """All logits far from zero, with rows that end within a vector."""
    path, device = kernel
    inputs = leaves({name: tensor.to(device) for name, tensor in tensors(13, 13).items()}, torch.float32)
    shifted = {**inputs, "q": inputs["q"] * 100, "bias": inputs["bias"] + level}
    out = attention(**shifted, function=function, causal=True, path=path, **drop)
    found = gradients(out, inputs)
    assert torch.isfinite(out).all()
    assert all(torch.isfinite(gradient).all() for gradient in found.values())
    if not drop:  # such logits have three decimals in float32, whoever computes them
        options = {"function": function, "causal": True, "path": "reference"}
        want = attention(**{name: tensor.double() for name, tensor in shifted.items()}, **options)
        error, usual = ((tensor - want).abs().max() for tensor in (out, attention(**shifted, **options)))
        assert error <= OUTPUT_FACTOR * usual + 1e-6 * want.abs().max()


@pytest.mark.parametrize("keys", [7, 19, 300])
def test_the_largest_logit_has_the_whole_weight(kernel, keys):
    """Wherever it stands in a row."""
    path, device = kernel
    k = 1000 * torch.eye(keys).unsqueeze(-1)  # (B, keys, 1): one sequence per place
    v = torch.randn(keys, keys, 3, generator=torch.Generator().manual_seed(1))
    out = attention(*(tensor.to(device) for tensor in (torch.ones(keys, 1, 1), k, v)), function="softmax", path=path)
    assert torch.equal(out.cpu(), v[torch.arange(keys), torch.arange(keys)].unsqueeze(1))
