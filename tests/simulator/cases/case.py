"""A case of an operator: one call of its kernels, and what it has to give by a formula written out in float64."""

from typing import Callable, Dict, List, NamedTuple

import torch
from torch import Tensor

FLOAT, HALF = torch.float32, torch.bfloat16
# Of a tensor's largest value, at least 1, by the type that the kernels return.
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-5, torch.bfloat16: 2e-2, torch.float16: 5e-3}
Results = Dict[str, Tensor]


class Case(NamedTuple):
    """One call of an operator and of its backward."""

    title: str
    run: Callable[[], Results]
    wanted: Results


def compare(case: Case, found: Results) -> List[str]:
    """Differences from the formula, in words."""
    wrong = []
    for name, want in case.wanted.items():
        got = found[name]
        if got.dim() == want.dim() + 1:  # the parts of a sum over the work
            got = got.sum(0)
        error = (got.double() - want).abs().max().item()
        if not error <= TOLERANCE[got.dtype] * max(want.abs().max().item(), 1.0):  # a NaN is wrong too
            wrong.append(f"{name}: error {error:.2g}")
    return [f"{case.title}: {', '.join(wrong)}"] if wrong else []


def ops() -> "torch._ops._OpNamespace":
    return torch.ops.fairseq_mega_sim


def normal(seed: int, *size: int, dtype: torch.dtype = FLOAT) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)).to(dtype)


def exact(tensors: Results) -> Results:
    """The same numbers in float64, wanting gradients."""
    return {name: tensor.detach().double().requires_grad_() for name, tensor in tensors.items()}


def with_gradients(outputs: Results, grads: Results, inputs: Results) -> Results:
    """Outputs, and the gradients of inputs where those of some outputs are given."""
    some = [outputs[name] for name in grads]
    found = torch.autograd.grad(some, list(inputs.values()), [grad.double() for grad in grads.values()])
    named = {f"gradient of {name}": value for name, value in zip(inputs, found)}
    return {**{name: value.detach() for name, value in outputs.items()}, **named}
