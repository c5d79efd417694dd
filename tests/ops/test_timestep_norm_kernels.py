"""The timestep norm's compiled operators and its choice of path: layouts, registration, compilation, errors."""

import pytest
import torch

from tests.ops.timestep_norm_cases import COUNTS, call, draw, padding, run
from tests.support import kernels
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


@pytest.mark.parametrize("name", ["torch", *kernels.KINDS])
def test_compiles_without_a_break(name, request, monkeypatch):
    path, kernel_device = name, torch.device("cpu")
    if path != "torch":
        path, kernel_device = "native", kernels.select(name, request, monkeypatch)
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


def test_kernels_are_the_choice_where_they_can_be(kernel_device):
    tensors = {name: value.float().to(kernel_device) for name, value in draw(20).items()}
    assert torch.equal(run(tensors, None)["y"], run(tensors, "native")["y"])
