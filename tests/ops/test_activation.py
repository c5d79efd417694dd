"""The kernels of activations against their formulas: values and every gradient, kept or computed again."""

import contextlib
import gc

import pytest
import torch
import torch.utils.checkpoint
from torch.multiprocessing.reductions import StorageWeakRef

from fairseq_mega.ops.activation import silu
from fairseq_mega.ops.common import native
from fairseq_mega.ops.common.recompute import recomputing
from fairseq_mega.ops.query_key import query_key
from tests.support.numerics import GRADIENT_FACTOR, assert_close, gradients, leaves

pytestmark = pytest.mark.skipif(native.PROBLEM is not None, reason=f"no compiled kernels: {native.PROBLEM}")

SHAPES = [(1,), (7,), (2, 5, 9), (2, 3, 128), (300, 33), (0, 4), (3, 0), (1, 1, 16), (513, 16)]
PARTS = [("x",), ("x", "factor"), ("x", "skip", "omega"), ("x", "factor", "skip", "omega")]
COLUMNS = {"omega": (), "kappa": (2,), "mu": (2,)}


def tensors(shape, names, scale=1.0, seed=1):
    generator = torch.Generator().manual_seed(seed)
    sizes = {name: (*COLUMNS[name], shape[-1]) if name in COLUMNS else shape for name in names}
    return {name: scale * torch.randn(size, generator=generator, dtype=torch.float64) for name, size in sizes.items()}


def literal_silu(x, factor=None, skip=None, omega=None):
    """Straight from the definition."""
    if skip is not None:
        x = x + omega * skip
    y = x / (1 + torch.exp(-x))
    return y if factor is None else factor * y


def literal_query_key(x, kappa, mu):
    shared = literal_silu(x)
    return torch.cat([kappa[0] * shared + mu[0], kappa[1] * shared + mu[1]], dim=-1)


def joined_query_key(x, kappa, mu, path=None):
    return torch.cat(query_key(x, kappa, mu, path=path), dim=-1)


def compare(function, literal, plain, dtype=torch.float32, columns=torch.float32):
    """Outputs and gradients of the kernels against float64; what is allowed is the reference's error."""
    results = {}
    for key, path, kind in (("want", None, torch.float64), ("baseline", "reference", dtype), ("got", "native", dtype)):
        rounded = {name: tensor.to(columns if name in COLUMNS else dtype) for name, tensor in plain.items()}
        inputs = {name: leaf for name, value in rounded.items() for leaf in leaves({name: value}, value.dtype).values()}
        inputs = leaves(rounded, torch.float64) if path is None else inputs
        out = literal(**inputs) if path is None else function(**inputs, path=path)
        assert out.dtype == kind
        results[key] = out, gradients(out.to(dtype), inputs)  # with weights rounded alike
    got, want, baseline = (results[key] for key in ("got", "want", "baseline"))
    assert_close("output", got[0], want[0], baseline[0])
    for name in plain:
        assert got[1][name].dtype == (columns if name in COLUMNS else dtype), name
        assert_close(f"gradient of {name}", got[1][name], want[1][name], baseline[1][name], GRADIENT_FACTOR)


@pytest.mark.parametrize("names", PARTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_silu_equals_its_formula(shape, names):
    compare(silu, literal_silu, tensors(shape, names))


@pytest.mark.parametrize("shape", SHAPES)
def test_query_key_equals_its_formula(shape):
    compare(joined_query_key, literal_query_key, tensors(shape, ("x", "kappa", "mu")))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("columns", ["half", "float32"])
@pytest.mark.parametrize("width", [37, 101])  # 101: several vectors at once, two single ones, and a part of one
def test_half_precision_computes_in_float32(cpu_level, dtype, columns, width):
    kind = dtype if columns == "half" else torch.float32
    compare(silu, literal_silu, tensors((5, width), PARTS[-1]), dtype, kind)
    compare(joined_query_key, literal_query_key, tensors((5, width), ("x", "kappa", "mu")), dtype, kind)


def test_any_number(cpu_level):
    """Errors are below 4e-7 of the result, or near the smallest normal number; infinities and NaN are the formula's."""
    far = torch.tensor([-float("inf"), -3e38, -1e4, -104.0, 104.0, 1e4, 3e38, float("inf"), float("nan")])
    x = torch.cat([far, torch.linspace(-95.0, 95.0, 4000), far]).requires_grad_()
    out, want = silu(x, path="native"), literal_silu(x.detach().double())
    torch.testing.assert_close(out.double(), want, rtol=4e-7, atol=2e-36, equal_nan=True)
    (gradient,) = torch.autograd.grad(out[9:-9].sum(), x)
    sigmoid = torch.sigmoid(x.detach().double())
    slope = (sigmoid * (1 + x.detach().double() * (1 - sigmoid)))[9:-9]
    torch.testing.assert_close(gradient[9:-9].double(), slope, rtol=4e-7, atol=1e-6)  # x (1 - s): 17 eps


@pytest.mark.parametrize("scale", [100.0, 1e4])
def test_extremes_stay_finite(cpu_level, scale):
    plain = tensors((4, 37), PARTS[-1], scale)
    inputs = leaves(plain, torch.float32)
    out = silu(**inputs, path="native")
    torch.testing.assert_close(out, silu(**inputs, path="reference"))
    for name, gradient in gradients(out, inputs).items():
        assert torch.isfinite(gradient).all(), name


def test_rows_may_lie_apart():
    wide = torch.randn(2, 6, 40, generator=torch.Generator().manual_seed(2))
    x, factor, skip = wide.split([10, 10, 20], dim=-1)
    options = {"factor": factor, "skip": skip[..., :10], "omega": torch.randn(10)}
    for view in (lambda t: t, lambda t: t.transpose(0, 1), lambda t: t[:, ::2], lambda t: t[:, :1]):
        turned = {name: t if name == "omega" else view(t) for name, t in options.items()}
        torch.testing.assert_close(silu(view(x), **turned, path="native"), silu(view(x), **turned, path="reference"))
        coefficients = torch.randn(2, 10), torch.randn(2, 10)
        for got, want in zip(*(query_key(view(x), *coefficients, path=path) for path in ("native", "reference"))):
            torch.testing.assert_close(got, want)


def test_what_is_computed_again_is_not_kept():
    x = tensors((4, 37), ("x",))["x"].float().requires_grad_()
    want = torch.autograd.grad(silu(x, path="reference").square().sum(), x)
    activated = silu(x, path="native")
    storage = StorageWeakRef(activated.untyped_storage())
    squares = recomputing(torch.square, activated)
    del activated
    assert storage.expired()
    torch.testing.assert_close(torch.autograd.grad(squares.sum(), x), want)


def test_a_graph_that_never_runs_backward_is_freed():
    """Its nodes must not keep their own results, as square roots and checkpointed layers would."""
    x = torch.rand(50, requires_grad=True)
    for around in (contextlib.nullcontext(), torch.autograd.graph.saved_tensors_hooks(torch.detach, torch.clone)):
        with around:
            root = recomputing(lambda t: torch.sqrt(t.exp()), silu(x, path="native"))
        storage = StorageWeakRef(root.untyped_storage())
        del root
        gc.collect()
        assert storage.expired()


def kept_bytes(run):
    """Bytes of the different memory that a computation keeps for its backward pass, and its result."""
    seen = {}

    def note(tensor):
        seen[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        out = run()
    return sum(seen.values()), out


def test_what_was_written_to_is_kept_as_it_is():
    """A hook that sets a feature to zero, which takes no part in the gradients."""
    x = tensors((4, 37), ("x",))["x"].float().requires_grad_()
    weight = torch.ones(37, requires_grad=True)
    found = []
    for path in ("native", "reference"):
        activated = silu(x, path=path)
        with torch.no_grad():
            activated[:, 3] = 0
        (gradient,) = torch.autograd.grad(recomputing(torch.mul, activated, weight).sum(), weight)
        found.append(gradient)
    assert found[0][3] == 0
    torch.testing.assert_close(*found)


def test_an_input_that_is_written_to_between_two_gradients():
    x = tensors((4, 37), ("x",))["x"].float().requires_grad_()
    factor, weight = torch.randn(4, 37), torch.ones(37, requires_grad=True)
    y = recomputing(torch.mul, silu(x, factor, path="native"), weight).sum()
    torch.autograd.grad(y, weight, retain_graph=True)
    factor.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(y, weight)
