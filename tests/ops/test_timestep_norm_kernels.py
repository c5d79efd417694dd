"""The timestep norm's compiled operators and its choice of path: layouts, registration, compilation, errors."""

import pytest
import torch

from fairseq_mega.ops.common import native
from fairseq_mega.ops.common.dispatch import VARIABLE
from fairseq_mega.ops.timestep_norm import TimestepNormState, timestep_norm
from tests.ops.timestep_norm_cases import COUNTS, call, draw, padding, run
from tests.support.numerics import gradients, leaves


def test_kernels_take_any_layout(kernel_device):
    tensors = {name: value.float().to(kernel_device) for name, value in draw(9).items()}
    want = run(tensors, "native")["y"]
    tensors["x"] = tensors["x"].transpose(0, 1).contiguous().transpose(0, 1)
    tensors["mean"] = tensors["mean"].t().contiguous().t()
    assert torch.equal(run(tensors, "native")["y"], want)


def test_kernels_repeat_themselves_bit_by_bit(kernel_device):
    results = []
    for _ in range(2):
        inputs = leaves({name: value.to(kernel_device) for name, value in draw(131).items()}, torch.float32)
        outputs = run(inputs, "native")
        results.append([*outputs.values(), *gradients(outputs["y"].cpu(), inputs).values()])
    assert all(torch.equal(first, second) for first, second in zip(*results))


@pytest.mark.parametrize("masked", [False, True])
def test_operators_are_registered_properly(masked, kernel_device):
    inputs = leaves({name: value.to(kernel_device) for name, value in draw(5).items()}, torch.float32)
    count = torch.tensor(COUNTS, device=kernel_device)
    mask = padding("interior", 5).to(kernel_device) if masked else None
    mean, variance = (inputs[name].detach().double().requires_grad_() for name in ("mean", "variance"))
    tensors = (inputs["x"], inputs["weight"], inputs["bias"], count, mean, variance, mask, 1e-5)
    torch.library.opcheck(native.operators.timestep_norm.default, tensors)
    x, mean = inputs["x"].detach(), mean.detach()
    rest = [value.detach() if isinstance(value, torch.Tensor) else value for value in tensors[3:]]
    backward = native.operators.timestep_norm_backward.default
    torch.library.opcheck(backward, (torch.ones_like(x), mean, mean, x, inputs["weight"].detach(), *rest))


@pytest.mark.parametrize("path", ["torch", "native"])
def test_compiles_without_a_break(path, kernel_device):
    torch._dynamo.reset()
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    mask = padding("interior", 9).to(kernel_device)
    results = []
    for function in (call, compiled):
        inputs = leaves({name: value.to(kernel_device) for name, value in draw(9).items()}, torch.float32)
        y, state = function(inputs, path, torch.tensor(COUNTS, device=kernel_device), mask)
        results.append([y, *state, *gradients(y.cpu(), inputs).values()])
    for want, got in zip(*results):
        torch.testing.assert_close(got, want)


def test_errors(monkeypatch):
    tensors = {name: value.float() for name, value in draw(4).items()}
    x, weight, bias = tensors["x"], tensors["weight"], tensors["bias"]
    with pytest.raises(ValueError, match="7 groups .norm_num_groups. do not divide 24"):
        timestep_norm(x, weight, bias, 7)
    with pytest.raises(ValueError, match="weight has shape"):
        timestep_norm(x, weight[1:], bias, 2)
    with pytest.raises(ValueError, match=r"padding mask has shape .*expected \(6, 4\)"):
        timestep_norm(x, weight, bias, 2, padding_mask=torch.zeros(6, 5, dtype=torch.bool))
    with pytest.raises(ValueError, match="must be bool"):
        timestep_norm(x, weight, bias, 2, padding_mask=torch.zeros(6, 4))
    with pytest.raises(ValueError, match="count must be int64"):
        run({**tensors}, None, counts=(0.5,) * len(COUNTS))
    with pytest.raises(ValueError, match="state mean has shape"):
        timestep_norm(x, weight, bias, 2, state=TimestepNormState(torch.zeros(6).long(), x[:, 0], x[:, 0]))
    monkeypatch.setenv(VARIABLE, "timestep_norm=fastest")
    with pytest.raises(ValueError, match=f"{VARIABLE}.*choose from"):
        timestep_norm(x, weight, bias, 2)
    monkeypatch.setattr(native, "PROBLEM", "it is missing in this test")
    monkeypatch.setenv(VARIABLE, "timestep_norm=native")
    with pytest.raises(RuntimeError, match="needs the compiled kernels.*build it with"):
        timestep_norm(x, weight, bias, 2)
    monkeypatch.setattr(native, "PROBLEM", None)
    with pytest.raises(TypeError, match="float64"):
        timestep_norm(x.double(), weight, bias, 2)


def test_kernels_are_the_choice_where_they_can_be(kernel_device):
    tensors = {name: value.float().to(kernel_device) for name, value in draw(20).items()}
    assert torch.equal(run(tensors, None)["y"], run(tensors, "native")["y"])
    x, weight, bias, *statistics = (tensors[name] for name in ("x", "weight", "bias", "mean", "variance"))
    count = torch.tensor(COUNTS, device=kernel_device)
    with pytest.raises(RuntimeError, match="must be float32"):
        native.operators.timestep_norm(x, weight.double(), bias, count, *statistics, None, 1e-5)
    with pytest.raises(RuntimeError, match="mean must be float64"):
        native.operators.timestep_norm(x, weight, bias, count, *statistics, None, 1e-5)
