"""The attention of whole groups on the CPU against the written-out formula, at every level of the CPU."""

import pytest
import torch

from fairseq_mega.ops.attention import FUNCTIONS, attention, chunked_attention
from fairseq_mega.ops.common import native
from tests.ops.attention_cases import compare, output_and_gradients, padding, tensors
from tests.support.numerics import assert_independent_of_threads, leaves

pytestmark = pytest.mark.skipif(native.PROBLEM is not None, reason=f"no compiled kernels: {native.PROBLEM}")

# Around a pair, a tile's rows, a panel's 32 and a block's 64 rows; keys of several panels.
SHAPES = [(1, 1), (3, 7), (12, 13), (33, 33), (63, 65), (129, 129), (19, 250)]
WIDTHS = [(8, 6), (5, 7), (33, 70), (32, 64)]  # z, v; odd ones are no pairs of bfloat16


@pytest.fixture(autouse=True)
def poisoned_extension():
    """Fill with NaN what the extension allocates, too."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("side", [None, "right", "left"])
def test_equals_reference(cpu_level, function, causal, shape, side):
    queries, keys = shape
    mask = padding((3,), keys, side)
    compare(tensors(queries, keys, (3,)), "native_blocks", mask=mask, function=function, causal=causal)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("widths", WIDTHS)
@pytest.mark.parametrize("shape", [(37, 37), (20, 75)])
@pytest.mark.parametrize("causal", [False, True])
def test_types_and_widths(cpu_level, dtype, widths, shape, causal):
    (queries, keys), (z, v) = shape, widths
    inputs = {name: tensor.to(dtype).double() for name, tensor in tensors(queries, keys, (2,), z, v).items()}
    compare(inputs, "native_blocks", dtype=dtype, mask=padding((2,), keys), causal=causal)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", [(45, 45), (150, 163)])
def test_sixteen_bits(function, dtype, causal, shape):
    """Pairs of queries, of which the first key of a panel is seen by the second one only."""
    inputs = {name: tensor.to(dtype).double() for name, tensor in tensors(*shape).items()}
    compare(inputs, "native_blocks", dtype=dtype, mask=padding((2,), shape[1]), function=function, causal=causal)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", [(1101, 1101), (67, 17001)])
def test_weights_that_are_kept_in_parts(dtype, causal, shape):
    """More of them than a thread keeps, so that gradients of keys and values are sums; the last part has few rows."""
    queries, keys = shape
    inputs = {name: tensor.to(dtype).double() for name, tensor in tensors(queries, keys, (1,), 2, 2).items()}
    compare(inputs, "native_blocks", dtype=dtype, function="laplace", causal=causal)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_an_explicit_scale_and_no_bias(function):
    inputs = tensors(37, 37)
    del inputs["bias"]
    compare(inputs, "native_blocks", function=function, causal=True, scale=0.37)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_nothing_to_attend_to_stays_finite(function):
    mask = torch.ones(2, 41, dtype=torch.bool)
    mask[0, 4:] = False
    compare(tensors(41, 41, (2,)), "native_blocks", mask=mask, function=function, causal=True)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("leading", [(), (5,), (2, 3)])
def test_leading_dimensions_and_strides(function, leading):
    wide = torch.randn(*leading, 11, 20)
    q, k, v = wide[..., :4], wide[..., 4:8], wide[..., 8:]
    mask = torch.zeros(*leading[:-1], 1, 11, dtype=torch.bool) if leading else torch.zeros(11, dtype=torch.bool)
    mask[..., -1] = True
    bias = torch.randn(42)[::2]
    outputs = [
        attention(q, k, v, function=function, padding_mask=mask, bias=bias, path=path)
        for path in ("native_blocks", "reference")
    ]
    torch.testing.assert_close(*outputs, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("length", [1, 63, 64, 65, 150])
def test_chunks(length):
    inputs = {name: tensor.float() for name, tensor in tensors(length, length).items()}
    inputs["bias"] = torch.randn(127)
    mask = padding((2,), length)
    outputs = [
        chunked_attention(**inputs, chunk_size=64, causal=True, padding_mask=mask, path=path)
        for path in ("native_blocks", "reference")
    ]
    torch.testing.assert_close(*outputs, rtol=2e-5, atol=2e-6)


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_any_number_of_threads_gives_the_same_bits(dtype):
    inputs = leaves(tensors(70, 70, (5,), 16, 32), dtype)
    assert_independent_of_threads(lambda: (attention(**inputs, causal=True, path="native_blocks"), inputs))


@pytest.mark.parametrize("path", ["native_blocks", None])
def test_backward_keeps_inputs_and_two_numbers_a_row(path):
    inputs = leaves(tensors(300, 300, (4,), 16, 32), torch.float32)
    kept = []

    def note(tensor):
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        attention(**inputs, path=path)
    sizes = sorted(tensor.numel() for tensor in kept)
    assert sizes == sorted([*(tensor.numel() for tensor in inputs.values()), 4 * 300 * 2])


def test_autocast_and_mixed_types():
    inputs = leaves(tensors(40, 40), torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        out = attention(inputs["q"], inputs["k"], inputs["v"].bfloat16(), bias=inputs["bias"], path="native_blocks")
    assert out.dtype == torch.bfloat16
    found = torch.autograd.grad(out.float().sum(), list(inputs.values()))
    assert all(gradient.dtype == torch.float32 for gradient in found)
    mixed = attention(inputs["q"].bfloat16(), inputs["k"], inputs["v"].half(), path="native_blocks")
    assert mixed.dtype == torch.float16
    want = attention(inputs["q"].bfloat16().float(), inputs["k"], inputs["v"].half().float(), path="reference")
    torch.testing.assert_close(mixed.float(), want, rtol=1e-3, atol=1e-3)


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
