"""Cases of the update gate."""

from typing import Iterator, Optional

import torch
from torch import Tensor

from tests.simulator.cases.case import FLOAT, HALF, Case, Results, exact, normal, ops, with_gradients
from tests.support.dropping import kept


def cases() -> Iterator[Case]:
    for size, dtype, addend, mixed, p, *gated in (
        ((1, 1), FLOAT, True, False, 0.0),
        ((3, 7), FLOAT, False, False, 0.5),
        ((2, 600), FLOAT, True, False, 0.0),
        ((130, 33), HALF, True, False, 0.1),
        ((5, 64), torch.float16, False, False, 0.0),
        ((5, 65), HALF, True, True, 0.3),  # beside a residual of float32
        ((4, 30), torch.float16, False, True, 0.0),
        ((5, 65), FLOAT, True, False, 0.3, False),  # the sum of a residual
        ((130, 33), HALF, False, True, 0.0, False),
    ):
        wide = normal(1, size[0], 4 * size[1], dtype=dtype)  # rows lie apart
        names = ("x", "update", "candidate", "addend")[: 4 if addend else 3]
        inputs = dict(zip(names, wide.split(size[1], dim=1)))
        if mixed:
            inputs["x"] = normal(3, *size)
        grad = normal(2, *size, dtype=inputs["x"].dtype)
        leaves = exact(inputs)
        candidate = leaves["candidate"]
        if addend:
            candidate = candidate + leaves["addend"]
            candidate = torch.nn.functional.silu(candidate) if all(gated) else candidate
        seed = torch.tensor(9) if p > 0.0 else None
        if seed is not None:
            candidate = torch.where(kept(seed, torch.Size(size), p), candidate / (1 - p), 0 * candidate)
        if all(gated):
            gate = torch.sigmoid(leaves["update"])
            y = gate * candidate + (1 - gate) * leaves["x"]
        else:
            y = leaves["x"] + candidate
            del inputs["update"], leaves["update"]
        wanted = with_gradients({"y": y}, {"y": grad}, leaves)

        def run(inputs: Results = inputs, grad: Tensor = grad, seed: Optional[Tensor] = seed, p: float = p) -> Results:
            given = [*(inputs.get(name) for name in ("x", "update", "candidate", "addend")), seed, p]
            found = ops().gated_residual_backward(grad, *given)
            found = (*found, found[2]) if "update" in inputs else (grad, found[2], found[2])
            gradients = {f"gradient of {name}": value for name, value in zip(inputs, found)}
            return {"y": ops().gated_residual(*given), **gradients}

        yield Case(f"gate {size} {dtype} addend {addend} mixed {mixed} dropout {p} {gated}", run, wanted)
