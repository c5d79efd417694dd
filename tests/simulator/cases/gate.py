"""Cases of the update gate."""

from typing import Any, Iterator, Optional

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


def norm_cases() -> Iterator[Case]:
    """Cases of the norm of the gate's result, with different results; nobody uses that in ``absent``."""
    every = ("update", "addend", "gate_bias", "weight", "bias")
    for size, dtype, names, p, origin, centred, results, absent, *mixed in (
        ((1, 1), FLOAT, ("update",), 0.0, 0.0, True, ("sum", "y"), ""),
        ((9, 128), HALF, every, 0.3, 0.0, True, ("y", "narrow"), "", True),
        ((9, 128), HALF, every, 0.0, 0.0, True, ("y", "narrow"), "y", True),
        ((9, 128), HALF, every[1:], 0.1, 1.0, True, ("sum", "narrow"), "sum", True),
        ((10, 124), HALF, every[1:], 0.1, 1.0, True, ("sum", "narrow"), "narrow", True),
        ((300, 33), FLOAT, every, 0.3, 0.0, True, ("y",), ""),
        ((2060, 9), FLOAT, every[2:4], 0.2, 0.0, False, ("y", "narrow"), "narrow"),  # parts of more rows
        ((9, 512), torch.float16, ("update", "weight"), 0.0, 1.0, False, ("sum", "y"), ""),
        ((5, 1100), FLOAT, every, 0.1, 0.0, True, ("sum", "narrow"), ""),
        ((3, 4096), HALF, ("gate_bias", "bias"), 0.0, 0.0, True, ("y",), ""),
        ((7, 66), HALF, ("update", "gate_bias"), 0.5, 0.0, True, ("sum", "y"), "y"),
        ((4, 30), torch.float16, ("update", "addend"), 0.0, 0.0, True, ("y",), "", True),
    ):
        rows = ("x", "candidate", *(name for name in names if name in ("update", "addend")))
        wide = normal(1, size[0], len(rows) * size[1], dtype=dtype)  # rows lie apart
        inputs = dict(zip(rows, wide.split(size[1], dim=1)))
        if mixed:
            inputs["x"] = normal(3, *size)
        inputs.update({name: normal(4 + i, size[1]) for i, name in enumerate(names) if name not in rows})
        seed = torch.tensor(9) if p > 0.0 else None
        leaves: Any = exact(inputs)
        c = leaves["candidate"] + leaves.get("gate_bias", 0.0) + leaves.get("addend", 0.0)
        if "update" in names and "addend" in names:
            c = torch.nn.functional.silu(c)
        if seed is not None:
            c = torch.where(kept(seed, torch.Size(size), p), c / (1 - p), 0 * c)
        x = leaves["x"]
        h = x + torch.sigmoid(leaves["update"]) * (c - x) if "update" in names else x + c
        n = h - h.mean(-1, keepdim=True) if centred else h
        n = n / (n.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        y = n * (leaves["weight"] + origin if "weight" in names else 1.0) + leaves.get("bias", 0.0)
        types = {"sum": inputs["x"].dtype, "y": inputs["x"].dtype, "narrow": HALF}
        grads = {name: normal(20 + i, *size, dtype=types[name]) for i, name in enumerate(results)}
        used = {name: 0 * grad if name == absent else grad for name, grad in grads.items()}
        wanted = with_gradients({name: h if name == "sum" else y for name in results}, used, leaves)
        grads.pop(absent, None)
        settings = (p, centred, 1e-5, origin)
        call = inputs, grads, seed, settings, results

        def run(call: Any = call) -> Results:
            inputs, grads, seed, settings, results = call
            given = [inputs.get(name) for name in ("x", "update", "candidate", "addend", "gate_bias")]
            given += [seed, inputs.get("weight")]
            made = ops().gated_residual_norm(
                *given, inputs.get("bias"), *settings, "sum" in results, "narrow" in results
            )
            x, update, candidate, sums = ops().gated_residual_norm_backward(
                *map(grads.get, ("sum", "y", "narrow")), *given, *settings
            )
            found = {"x": x, "update": update, "candidate": candidate, "addend": candidate}
            found.update(zip(("weight", "bias", "gate_bias"), sums))
            return {**dict(zip(results, made)), **{f"gradient of {name}": found[name] for name in inputs}}

        yield Case(f"norm of gate {size} {dtype} {names} {settings} {results} without {absent}", run, wanted)
