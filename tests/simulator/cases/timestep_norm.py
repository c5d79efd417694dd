"""Cases of the timestep normalisation."""

import math
from typing import Iterator, Optional

import torch
from torch import Tensor

from tests.simulator.cases.case import FLOAT, HALF, Case, Results, exact, normal, ops, with_gradients

STATISTICS = ("gradient of mean", "gradient of variance")


def cases() -> Iterator[Case]:
    for batch, length, width, groups, dtype, masked, *carried in (
        (1, 1, 3, 1, FLOAT, False),
        (2, 33, 24, 2, FLOAT, True),
        (1, 70, 27, 9, FLOAT, True),
        (3, 70, 6, 2, FLOAT, True),  # the first sequence is nothing but padding
        (2, 70, 32, 16, FLOAT, False),  # as many groups as a block may have
        (3, 65, 320, 1, FLOAT, False),
        (1, 3, 257, 1, FLOAT, False),  # one feature more than a block has threads
        (1, 70, 4500, 1, FLOAT, True),  # tiles of one step each, more than a warp has lanes
        (2, 66, 264, 66, FLOAT, True),  # several blocks of groups
        (2, 67, 80, 2, HALF, True),
        (3, 70, 6, 2, FLOAT, True, False),  # before the first step
        (70, 40, 2, 1, FLOAT, False, False),  # more sequences than have their sums added up at once
    ):
        inputs = {
            "x": normal(1, batch, length, width, dtype=dtype) * 1.5 + 0.5,
            "weight": normal(2, width) / 2,
            "bias": normal(3, width) / 2,
            "mean": normal(4, batch, groups).double(),
            "variance": normal(5, batch, groups).double().square() + 0.2,
        }
        count = torch.arange(batch) * 5 % 11 * all(carried)
        padding = None
        if masked:
            padding = torch.rand(batch, length, generator=torch.Generator().manual_seed(6)) < 0.3
            padding[0, 0] = True
            padding[0] |= torch.tensor(batch == 3)
        grads = {"y": normal(7, batch, length, width, dtype=dtype)}
        grads.update(mean=normal(8, batch, groups).double(), variance=normal(9, batch, groups).double())
        if not all(carried):
            inputs.update(mean=torch.zeros(batch, groups).double(), variance=torch.ones(batch, groups).double())
            grads = {"y": grads["y"]}
        if dtype == FLOAT and length > 65:
            grads["narrow"] = normal(10, batch, length, width, dtype=HALF)
        leaves = exact(inputs)
        outputs = by_definition(leaves, count, padding)
        if "narrow" in grads:
            outputs["narrow"] = outputs["y"]
        wanted = with_gradients(outputs, grads, leaves)
        if not all(carried):
            wanted = {name: value for name, value in wanted.items() if name not in STATISTICS}

        # Statistics of no steps, before some: what stands there plays no part.
        unknown = (count == 0) & (True if padding is None else ~padding.all(1))
        for name in ("mean", "variance"):
            inputs[name] = inputs[name].masked_fill(unknown.unsqueeze(1), math.nan)

        def run(
            inputs: Results = inputs,
            count: Tensor = count,
            padding: Optional[Tensor] = padding,
            grads: Results = grads,
        ) -> Results:
            x, weight, bias, *state = inputs.values()
            before = (count, *state) if "mean" in grads else (None, None, None)
            groups = state[0].size(1)
            narrow = "narrow" in grads
            y, second, *last, tiles = ops().timestep_norm(x, weight, bias, groups, *before, padding, 1e-5, narrow)
            of_others = (grads.get(name) for name in ("narrow", "mean", "variance"))
            given = (x, weight, groups, *before, padding, tiles, 1e-5)
            found = ops().timestep_norm_backward(grads["y"], *of_others, *given)
            found = (found[0], *found[1], *found[2:])
            gradients = {f"gradient of {name}": value for name, value in zip(inputs, found)}
            statistics = dict(zip(("count", "mean", "variance"), (last[0].double(), *last[1:])))
            return {"y": y, "narrow": second, **statistics, **gradients}

        yield Case(f"norm B {batch} L {length} D {width} G {groups} {dtype} masked {masked} {carried}", run, wanted)


def by_definition(leaves: Results, count: Tensor, padding: Optional[Tensor]) -> Results:
    x, weight, bias, mean, variance = leaves.values()
    batch, length, width = x.shape
    outputs = []
    seen = count.double()
    for t in range(length):
        step = x[:, t].view(batch, mean.size(1), -1)
        present = torch.ones(batch, dtype=torch.bool) if padding is None else ~padding[:, t]
        share = (1 / (seen + 1)).unsqueeze(1)
        far = step.mean(-1) - mean
        new_mean = mean + far * share
        new_variance = variance + (step.var(-1, correction=0) - variance) * share + far.square() * share * (1 - share)
        y = (step - new_mean.unsqueeze(-1)) / (new_variance.unsqueeze(-1) + 1e-5).sqrt()
        outputs.append((y.reshape(batch, width) * (weight + 1) + bias) * present.unsqueeze(1))
        mean = torch.where(present.unsqueeze(1), new_mean, mean)
        variance = torch.where(present.unsqueeze(1), new_variance, variance)
        seen = seen + present
    return {"y": torch.stack(outputs, 1), "count": seen, "mean": mean, "variance": variance}
