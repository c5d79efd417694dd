"""Operators called the shortest way: what torch's dispatcher gives, with the same errors."""

from typing import Any, List, Tuple

import pytest
import torch

from fairseq_mega.ops.common import native

CASES = ("silu", "row_norm", "gated_residual", "attention")


def arguments_of(name: str, device: torch.device) -> Tuple[Any, ...]:
    generator = torch.Generator().manual_seed(1)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(device).requires_grad_()

    if name == "silu":
        return draw(3, 8), draw(3, 8), None, None
    if name == "row_norm":
        return draw(3, 8), draw(8), draw(8), True, 1e-5, False
    if name == "gated_residual":
        return draw(2, 3, 8), draw(2, 3, 8), draw(2, 3, 8), None, None, 0.0
    return draw(2, 4, 3), draw(2, 4, 3), draw(2, 4, 5), draw(7), None, None, "softmax", True, 0.0, 0.0, 0.5


def outputs_and_gradients(call: Any, arguments: Tuple[Any, ...]) -> List[torch.Tensor]:
    output = call(*arguments)
    first = output if isinstance(output, torch.Tensor) else output[0]
    leaves = [argument for argument in arguments if isinstance(argument, torch.Tensor)]
    return [first.detach(), *torch.autograd.grad(first.cos().sum(), leaves)]


@pytest.mark.parametrize("name", CASES)
def test_as_the_dispatcher(name, kernel_device):
    if native.NAMESPACE != "fairseq_mega":
        pytest.skip("the simulator has no dispatcher of its own to compare with")
    if kernel_device.type == "cuda" and name in ("silu", "row_norm"):
        pytest.skip("this operator is for a CPU")
    arguments = arguments_of(name, kernel_device)
    want = outputs_and_gradients(getattr(torch.ops.fairseq_mega, name), arguments)
    for one, other in zip(outputs_and_gradients(getattr(native.operators, name), arguments), want):
        assert torch.equal(one, other)
    with torch.no_grad():
        output = getattr(native.operators, name)(*arguments)
    assert not (output if isinstance(output, torch.Tensor) else output[0]).requires_grad


def test_the_dispatcher_is_passed_by(kernel_device, monkeypatch):
    """An eager call with gradients is a node of a function of ours, not of one that torch made for the operator."""
    output = native.operators.gated_residual(*arguments_of("gated_residual", kernel_device))
    assert type(output.grad_fn).__name__ == "gated_residualBackward"
