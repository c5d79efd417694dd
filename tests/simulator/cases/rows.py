"""Cases of operators on rows: activations, norms, parts of linear maps, and queries and keys of both models."""

from typing import Any, Callable, Iterator, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.simulator.cases.case import FLOAT, HALF, Case, Results, exact, normal, ops, with_gradients
from tests.support.dropping import kept

# Around the 32 columns of a block, the rows that a warp reads at once, and the 256 rows of a part.
SIZES = (
    ((1, 1), FLOAT),
    ((3, 7), FLOAT),
    ((300, 32), FLOAT),
    ((257, 33), FLOAT),
    ((600, 5), FLOAT),
    ((9000, 2), FLOAT),  # more parts than a block has warps
    ((70, 65), HALF),
    ((40, 30), torch.float16),
)


def apart(inputs: Results) -> Results:
    """The same numbers in rows that lie apart."""
    return {name: torch.cat([value, value], dim=-1)[..., : value.size(-1)] for name, value in inputs.items()}


def case(
    title: str,
    rows: Results,
    columns: Results,
    formula: Callable[..., Results],
    run: Callable[..., Results],
    dtype: Optional[torch.dtype] = None,
) -> Case:
    """A case whose gradients of results are random; ``run`` gets the gradients of the results and all inputs.

    Results have this dtype, by default that of the rows.
    """
    leaves = exact({**rows, **columns})
    made = formula(**leaves)
    dtype = dtype or next(iter(rows.values())).dtype
    grads = {name: normal(20 + i, *value.shape, dtype=dtype) for i, (name, value) in enumerate(made.items())}
    return Case(title, lambda: run(grads, **apart(rows), **columns), with_gradients(made, grads, leaves))


def silu_cases() -> Iterator[Case]:
    for size, dtype in SIZES:
        every = ("factor", "skip", "omega")
        for names, p, activated in (
            ((), 0.0, True),
            (("factor",), 0.0, True),
            (every[1:], 0.3, True),
            (every[1:], 0.0, False),
            (every, 0.1, True),
            (("bias",), 0.2, True),
            ((*every, "bias"), 0.0, True),
        ):
            seed = torch.tensor(9) if p > 0.0 else None
            rest = (seed, p, activated)
            factors = 1.0 if seed is None else kept(seed, torch.Size(size), p) / (1 - p)
            coefficients = ("omega", "bias")
            rows = {
                name: normal(i, *size, dtype=dtype) for i, name in enumerate(("x", *names)) if name not in coefficients
            }
            columns = {name: normal(9 + i, size[1]) for i, name in enumerate(coefficients) if name in names}

            def formula(x: Tensor, factor: Any = None, skip: Any = None, omega: Any = None, bias: Any = 0.0) -> Results:
                y = x + bias if skip is None else x + omega * skip + bias
                y = (F.silu(y) if activated else y) * factors  # noqa: B023
                return {"y": y if factor is None else factor * y}

            def run(grads: Results, x: Tensor, rest: Any = rest, **given: Tensor) -> Results:
                every = ("factor", "skip", "omega", "bias")
                others = [given.get(name) for name in every]
                *found, sums = ops().silu_backward(grads["y"], x, *others, *rest)
                gradients = {f"gradient of {name}": g for name, g in zip(("x", *every), (*found, *sums))}
                return {"y": ops().silu(x, *others, *rest), **gradients}

            yield case(f"silu {size} {dtype} {names} {p} {activated}", rows, columns, formula, run)


def query_key_cases() -> Iterator[Case]:
    def formula(x: Tensor, kappa: Tensor, mu: Tensor) -> Results:
        query, key = kappa.unsqueeze(1) * F.silu(x) + mu.unsqueeze(1)
        return {"query": query, "key": key}

    def run(grads: Results, x: Tensor, kappa: Tensor, mu: Tensor) -> Results:
        of_x, (of_kappa, of_mu) = ops().query_key_backward(*grads.values(), x, kappa)
        made = dict(zip(grads, ops().query_key(x, kappa, mu)))
        return {**made, "gradient of x": of_x, "gradient of kappa": of_kappa, "gradient of mu": of_mu}

    for size, dtype in (*SIZES, ((2, 8225), FLOAT)):  # more tiles of columns than streams have counters
        columns = {"kappa": normal(2, 2, size[1]), "mu": normal(3, 2, size[1])}
        yield case(f"query and key {size} {dtype}", {"x": normal(1, *size, dtype=dtype)}, columns, formula, run)


def linear_cases() -> Iterator[Case]:
    for (rows, width), dtype in (*SIZES, ((2, 8225), FLOAT)):  # more tiles of columns than streams have counters
        for widths in ((width,), (width, 3), (1, width, 31), (32, 64, width, 1)):
            parts = {f"part {i}": normal(i, rows, one, dtype=dtype) for i, one in enumerate(widths)}

            def formula(**parts: Tensor) -> Results:
                joined = torch.cat(list(parts.values()), dim=1)
                return {"joined": joined, "sums": joined.sum(0)}

            def run(parts: Results = parts) -> Results:
                joined, sums = ops().join_parts(*apart(parts).values(), *(None,) * (4 - len(parts)))
                return {"joined": joined, "sums": sums}

            wanted = {name: value.detach() for name, value in formula(**exact(parts)).items()}
            yield Case(f"parts {rows} {widths} {dtype}", run, wanted)


def rotary_cases() -> Iterator[Case]:
    for batch, length, heads, features, first, reach, dtype, *units in (
        (1, 1, 1, 2, 0, 1, FLOAT),
        (2, 5, 3, 6, 0, 8, FLOAT),
        (3, 33, 1, 66, 2, 4, FLOAT),  # more pairs than a warp has lanes; chunks
        (1, 300, 2, 4, 7, 128, FLOAT),  # more rows than a part has
        (1, 3, 2, 130, 1, 8, FLOAT),  # more features than a block has in the backward pass
        (2, 70, 1, 34, 0, 70, HALF),
        (1, 9, 2, 8, 0, 16, torch.float16),
        (2, 5, 3, 6, 0, 8, FLOAT, 0.7),  # scales from one
    ):
        turns, unit = angles(reach, features), sum(units)

        def formula(x: Tensor, scale: Tensor, offset: Tensor) -> Results:
            n = x.unflatten(-1, (-1, scale.size(-1)))
            n = n / (n.square().mean(-1, keepdim=True) + 1e-5).sqrt()
            cosine, sine = turns.double()[(first + torch.arange(x.size(1))) % reach].unbind(1)  # noqa: B023
            made = {}
            for j, name in enumerate(("query", "key")):
                v = offset[j] + n * ((scale[j] + 1) * unit if unit else scale[j])  # noqa: B023
                swapped = v.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
                made[name] = (v * cosine.unsqueeze(1) + swapped * sine.unsqueeze(1)).flatten(-2)
            return made

        def run(
            grads: Results,
            x: Tensor,
            scale: Tensor,
            offset: Tensor,
            rest: Tuple[Any, ...] = (turns, first, 1e-5, unit),
        ) -> Results:
            of_x, sums = ops().rotary_query_key_backward(*grads.values(), x, scale, *rest)
            of_scale, of_offset = sums.view(2, *scale.shape)
            made = dict(zip(grads, ops().rotary_query_key(x, scale, offset, *rest)))
            return {**made, "gradient of x": of_x, "gradient of scale": of_scale, "gradient of offset": of_offset}

        columns = {"scale": normal(2, 2, heads, features), "offset": normal(3, 2, heads, features)}
        rows = {"x": normal(1, batch, length, heads * features, dtype=dtype)}
        title = f"rotary ({batch}, {length}, {heads}, {features}) from {first} of {reach} {dtype} {unit}"
        yield case(title, rows, columns, formula, run)


def angles(reach: int, features: int) -> Tensor:
    """Cosines and signed sines (reach, 2, features) of any angles, those of a pair alike."""
    angle = torch.arange(reach).unsqueeze(1) * (1.0 + torch.arange(features // 2)) / 7
    signs = torch.tensor([-1.0, 1.0]).repeat(features // 2)
    return torch.stack([angle.cos().repeat_interleave(2, 1), angle.sin().repeat_interleave(2, 1) * signs], dim=1)


def norm_cases() -> Iterator[Case]:
    for size, dtype, names, origin, centred, *narrow in (
        ((1, 1), FLOAT, (), 0.0, False),
        ((5, 7), FLOAT, ("weight", "bias"), 0.0, True),
        ((19, 128), FLOAT, ("weight", "bias"), 1.0, True),
        ((20, 36), FLOAT, ("weight",), 1.0, False),
        ((2060, 9), FLOAT, ("weight", "bias"), 0.0, True),  # parts of more rows than a block has at once
        ((9, 512), FLOAT, ("weight", "bias"), 0.0, True),  # the most that a warp holds
        ((3, 513), FLOAT, ("weight",), 0.0, False),
        ((11, 1100), FLOAT, ("weight", "bias"), 0.0, True),  # a row of a block
        ((2, 4096), HALF, ("weight",), 1.0, False),
        ((30, 66), HALF, ("weight", "bias"), 0.0, True),
        ((9, 80), torch.float16, (), 0.0, True),
        ((12, 132), FLOAT, ("weight", "bias"), 0.0, True, True),  # into bfloat16
    ):
        rest = (centred, 1e-5, origin, bool(narrow))
        columns = {name: normal(7 + i, size[1]) for i, name in enumerate(names)}
        x = normal(1, *size, dtype=dtype) + 3

        def formula(x: Tensor, weight: Any = None, bias: Any = None) -> Results:
            n = x - x.mean(-1, keepdim=True) if centred else x  # noqa: B023
            n = n / (n.square().mean(-1, keepdim=True) + 1e-5).sqrt()
            n = n if weight is None else n * (weight + origin)  # noqa: B023
            return {"y": n if bias is None else n + bias}

        def run(grads: Results, x: Tensor, weight: Any = None, bias: Any = None, rest: Any = rest) -> Results:
            y = ops().row_norm(x, weight, bias, *rest)
            of_x, (of_weight, of_bias) = ops().row_norm_backward(grads["y"], x, weight, *rest)
            return {"y": y, "gradient of x": of_x, "gradient of weight": of_weight, "gradient of bias": of_bias}

        yield case(f"norm {size} {dtype} {rest}", {"x": x}, columns, formula, run, HALF if narrow else dtype)
