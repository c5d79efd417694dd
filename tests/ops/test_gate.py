"""The update gate's kernels against the formula: values and every gradient."""

import pytest
import torch

from fairseq_mega.ops.gate import gated_residual
from tests.support.numerics import GRADIENT_FACTOR, assert_close, gradients, leaves

NAMES = ("residual", "update", "candidate", "addend")


def tensors(*shape, scale=1.0, addend=True, seed=1):
    generator = torch.Generator().manual_seed(seed)
    draw = {name: scale * torch.randn(*shape, generator=generator, dtype=torch.float64) for name in NAMES}
    return draw if addend else {name: draw[name] for name in NAMES[:3]}


def literal(inputs):
    """Straight from the definition."""
    candidate = inputs["candidate"]
    if "addend" in inputs:
        total = candidate + inputs["addend"]
        candidate = total / (1 + torch.exp(-total))
    gate = 1 / (1 + torch.exp(-inputs["update"]))
    return gate * candidate + (1 - gate) * inputs["residual"]


@pytest.mark.parametrize("addend", [False, True])
@pytest.mark.parametrize("shape", [(1,), (7,), (3, 8), (2, 5, 9), (2, 3, 128), (300, 33), (0, 4), (1, 1, 16)])
def test_kernels_equal_formula(any_kernels, shape, addend):
    plain = tensors(*shape, addend=addend)
    results = {}
    for key, path, dtype, where in (
        ("want", None, torch.float64, "cpu"),
        ("baseline", "reference", torch.float32, "cpu"),
        ("got", "native", torch.float32, any_kernels),
    ):
        inputs = leaves({name: tensor.to(where) for name, tensor in plain.items()}, dtype)
        out = literal(inputs) if path is None else gated_residual(**inputs, path=path)
        results[key] = (out.cpu(), {name: value.cpu() for name, value in gradients(out, inputs).items()})
    got, want, baseline = (results[key] for key in ("got", "want", "baseline"))
    assert_close("output", got[0], want[0], baseline[0])
    for name in plain:
        assert_close(f"gradient of {name}", got[1][name], want[1][name], baseline[1][name], GRADIENT_FACTOR)


def test_rows_may_lie_apart(kernel_device):
    wide = torch.randn(2, 5, 40, generator=torch.Generator().manual_seed(2)).to(kernel_device)
    parts = dict(zip(NAMES, wide.split([10, 10, 10, 10], dim=-1)))
    torch.testing.assert_close(gated_residual(**parts, path="native"), gated_residual(**parts, path="reference"))
    for name in NAMES:  # every input has a stride of its own
        mixed = {**parts, name: parts[name].contiguous()}
        torch.testing.assert_close(gated_residual(**mixed, path="native"), gated_residual(**mixed, path="reference"))
    turned = {name: part.transpose(0, 1) for name, part in parts.items()}
    torch.testing.assert_close(gated_residual(**turned, path="native"), gated_residual(**turned, path="reference"))
    odd = {name: part[:, ::2] for name, part in parts.items()}
    torch.testing.assert_close(gated_residual(**odd, path="native"), gated_residual(**odd, path="reference"))
    one = {name: part[:, :1] for name, part in parts.items()}
    torch.testing.assert_close(gated_residual(**one, path="native"), gated_residual(**one, path="reference"))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("residual", ["half", "float32"])
def test_half_precision_computes_in_float32(any_kernels, dtype, residual):
    rounded = {name: tensor.to(dtype).to(any_kernels) for name, tensor in tensors(4, 37).items()}
    if residual == "float32":  # as under autocast
        rounded["residual"] = tensors(4, 37)["residual"].float().to(any_kernels)
    inputs = {name: tensor.detach().requires_grad_() for name, tensor in rounded.items()}
    exact = leaves({name: tensor.cpu() for name, tensor in rounded.items()}, torch.float64)
    out, want = gated_residual(**inputs, path="native"), literal(exact)
    assert_close("output", out.cpu(), want, want.to(out.dtype))
    expected = gradients(want, exact)
    for name, gradient in gradients(out, inputs).items():
        baseline = expected[name].to(gradient.dtype)
        assert_close(f"gradient of {name}", gradient.cpu(), expected[name], baseline, GRADIENT_FACTOR)
    assert out.dtype == rounded["residual"].dtype


@pytest.mark.parametrize("scale", [100.0, 1e4])
def test_extremes_stay_finite(kernel_device, scale):
    inputs = leaves({n: t.to(kernel_device) for n, t in tensors(4, 37, scale=scale).items()}, torch.float32)
    out = gated_residual(**inputs, path="native")
    torch.testing.assert_close(out, gated_residual(**inputs, path="reference"))
    for name, gradient in gradients(out, inputs).items():
        assert torch.isfinite(gradient).all(), name


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves_are_read_and_rounded_as_torch_does(cpu_level, dtype):
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
