"""The EMA's compiled operators: torch's rules for operators, compilation, single steps, strides and errors."""

import pytest
import torch

from fairseq_mega.ops.ema import gated_ema_step
from tests.ops.ema_cases import BATCH, WIDTH, N, case, coefficients_of, complex_parameters, parameters, run
from tests.support.numerics import assert_close, gradients, leaves


@pytest.mark.parametrize("padded", [False, True])
def test_compiles_into_one_graph(kernel_device, padded):
    tensors, options = case("carried", 9)
    if padded:
        options["padding_mask"] = torch.zeros(BATCH, 9, dtype=torch.bool, device=kernel_device)
        options["padding_mask"][0, 3:5] = options["padding_mask"][1, :2] = True
    inputs = leaves({name: tensor.to(kernel_device) for name, tensor in tensors.items()}, torch.float32)
    names = list(inputs)

    def function(*values):
        y, state = run(dict(zip(names, values)), "native", **options)
        if padded:
            y = y.masked_fill(options["padding_mask"].unsqueeze(-1), 0.0)
        return torch.cat([y.flatten(), state.flatten()])

    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    got, want = compiled(*inputs.values()), function(*inputs.values())
    torch.testing.assert_close(got, want)
    found, expected = gradients(got, inputs), gradients(want, inputs)
    for name in names:
        torch.testing.assert_close(found[name], expected[name], msg=name)


def test_transforms_may_map_over_masks():
    tensors, _ = case("causal", 9)
    masks = torch.zeros(BATCH, 9, dtype=torch.bool)
    masks[0, 3:5] = masks[1, :2] = True

    def loss(x, mask):
        y, state = run({**tensors, "x": x[None]}, "torch_fft", padding_mask=mask[None], return_state=True)
        return y[0, :, 0].masked_fill(mask, 0.0).square().sum() + state.sum()

    got = torch.vmap(torch.func.grad(loss))(tensors["x"], masks)
    for row, mask in enumerate(masks):
        x = tensors["x"][row].clone().requires_grad_()
        torch.testing.assert_close(got[row], torch.autograd.grad(loss(x, mask), x)[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("fresh", [False, True])
def test_one_fused_step(kernel_device, dtype, fresh):
    tensors, _ = case("carried", 1)
    tensors["omega"] = torch.randn(WIDTH, dtype=torch.float64)
    if fresh:
        del tensors["state"]
    rounded = {name: tensor.to(dtype).to(kernel_device) for name, tensor in tensors.items()}
    if not fresh:
        rounded["state"] = rounded["state"].float()
    with torch.no_grad():
        out, state = gated_ema_step(
            rounded["x"][:, 0], coefficients_of(rounded), rounded["omega"], rounded.get("state")
        )
    exact = {name: tensor.cpu().double() for name, tensor in rounded.items()}
    y, last = run(exact, "reference", return_state=True)
    want = torch.nn.functional.silu(y + exact["omega"] * exact["x"])[:, 0]
    assert out.dtype == dtype
    assert_close("output", out.cpu(), want, want.to(dtype))
    assert_close("state", state.cpu(), last)


def test_kernels_read_any_strides(kernel_device):
    tensors, options = case("carried", 40)
    plain = {name: tensor.float().to(kernel_device) for name, tensor in tensors.items()}
    turned = {**plain, "x": plain["x"].transpose(0, 1).contiguous().transpose(0, 1)}
    assert not turned["x"].is_contiguous()
    torch.testing.assert_close(run(turned, "native", **options), run(plain, "native", **options))


@pytest.mark.parametrize("kind", ["real", "complex"])
def test_no_subnormal_number_is_computed_with(kind, cpu_level):
    """Some CPUs are fifty times as slow with them; after the kernels torch counts them as before."""
    length, least = 600, torch.finfo(torch.float32).tiny
    tensors = parameters(WIDTH, N) if kind == "real" else complex_parameters(WIDTH, N)
    x = torch.zeros(1, length, WIDTH)
    x[:, 0] = 1.0  # and nothing else: the memory fades away
    inputs = leaves({"x": x, **tensors}, torch.float32)
    y, _ = run(inputs, "native")
    (found,) = torch.autograd.grad(y[:, -1].sum(), inputs["x"])
    assert (torch.full((), least) / 2).item() > 0
    reference, _ = run(inputs, "reference")
    (expected,) = torch.autograd.grad(reference[:, -1].sum(), inputs["x"])
    for got, want in ((y, reference), (found, expected)):
        assert ((want != 0) & (want.abs() < least)).any()
        assert not ((got != 0) & (got.abs() < least)).any()
