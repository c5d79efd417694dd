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
        ((300, 33), FLOAT, True, False, 0.3, True, "bias"),
        ((70, 40), HALF, False, True, 0.1, False, "bias"),
    ):
        wide = normal(1, size[0], 4 * size[1], dtype=dtype)  # rows lie apart
        names = ("x", "update", "candidate", "addend")[: 4 if addend else 3]
        inputs = dict(zip(names, wide.split(size[1], dim=1)))
        if mixed:
            inputs["x"] = normal(3, *size)
        grad = normal(2, *size, dtype=inputs["x"].dtype)
        if "bias" in gated:
            inputs["bias"] = normal(4, size[1])
        leaves = exact(inputs)
        candidate = leaves["candidate"]
        if "bias" in gated:
            candidate = candidate + leaves["bias"]
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
            names = ("x", "update", "candidate", "addend", "bias")
            given = [*(inputs.get(name) for name in names), seed, p]
            of_x, of_update, of_candidate, of_bias = ops().gated_residual_backward(grad, *given)
            of_x = of_x if "update" in inputs else grad
            found = dict(zip(names, (of_x, of_update, of_candidate, of_candidate, of_bias)))
            gradients = {f"gradient of {name}": found[name] for name in inputs}
            return {"y": ops().gated_residual(*given), **gradients}

        yield Case(f"gate {size} {dtype} addend {addend} mixed {mixed} dropout {p} {gated}", run, wanted)
