"""Cases of the update gate."""

from typing import Iterator

import torch
from torch import Tensor

from tests.simulator.cases.case import FLOAT, HALF, Case, Results, exact, normal, ops, with_gradients


def cases() -> Iterator[Case]:
    for size, dtype, addend in (
        ((1, 1), FLOAT, True),
        ((3, 7), FLOAT, False),
        ((2, 600), FLOAT, True),
        ((130, 33), HALF, True),
        ((5, 64), torch.float16, False),
    ):
        wide = normal(1, size[0], 4 * size[1], dtype=dtype)  # rows lie apart
        names = ("x", "update", "candidate", "addend")[: 4 if addend else 3]
        inputs = dict(zip(names, wide.split(size[1], dim=1)))
        grad = normal(2, *size, dtype=dtype)
        leaves = exact(inputs)
        candidate = leaves["candidate"]
        if addend:
            candidate = torch.nn.functional.silu(candidate + leaves["addend"])
        gate = torch.sigmoid(leaves["update"])
        wanted = with_gradients({"y": gate * candidate + (1 - gate) * leaves["x"]}, {"y": grad}, leaves)

        def run(inputs: Results = inputs, grad: Tensor = grad) -> Results:
            given = [inputs.get(name) for name in ("x", "update", "candidate", "addend")]
            found = ops().gated_residual_backward(grad, *given)
            gradients = {f"gradient of {name}": value for name, value in zip(inputs, (*found, found[2]))}
            return {"y": ops().gated_residual(*given), **gradients}

        yield Case(f"gate {size} {dtype} addend {addend}", run, wanted)
