"""Cases of the timestep normalisation."""

import math
from typing import Iterator, Optional

import torch
from torch import Tensor

from tests.simulator.cases.case import FLOAT, HALF, Case, Results, exact, normal, ops, with_gradients


def cases() -> Iterator[Case]:
    for batch, length, width, groups, dtype, masked in (
        (1, 1, 3, 1, FLOAT, False),
        (2, 33, 24, 2, FLOAT, True),
        (1, 70, 27, 9, FLOAT, True),
        (3, 70, 6, 2, FLOAT, True),  # the first sequence is nothing but padding
        (2, 70, 32, 16, FLOAT, False),  # as many groups as a block may have
        (3, 65, 320, 1, FLOAT, False),
        (1, 3, 257, 1, FLOAT, False),  # one feature more than a block has threads
        (1, 1100, 2, 1, FLOAT, True),  # more tiles than a warp has lanes
        (520, 40, 2, 1, FLOAT, False),  # enough sequences: a block walks over the tiles
        (2, 67, 80, 2, HALF, True),
    ):
        inputs = {
            "x": normal(1, batch, length, width, dtype=dtype) * 1.5 + 0.5,
            "weight": normal(2, width) / 2,
            "bias": normal(3, width) / 2,
            "mean": normal(4, batch, groups).double(),
            "variance": normal(5, batch, groups).double().square() + 0.2,
        }
        count = torch.arange(batch) * 5 % 11
        padding = None
        if masked:
            padding = torch.rand(batch, length, generator=torch.Generator().manual_seed(6)) < 0.3
            padding[0, 0] = True
            padding[0] |= torch.tensor(batch == 3)
        grads = {"y": normal(7, batch, length, width, dtype=dtype)}
        grads.update(mean=normal(8, batch, groups).double(), variance=normal(9, batch, groups).double())
        leaves = exact(inputs)
        wanted = with_gradients(by_definition(leaves, count, padding), grads, leaves)

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
            x, weight, bias, mean, variance = inputs.values()
            y, last_mean, last_variance = ops().timestep_norm(x, weight, bias, count, mean, variance, padding, 1e-5)
            found = ops().timestep_norm_backward(
                grads["y"], grads["mean"], grads["variance"], x, weight, count, mean, variance, padding, 1e-5
            )
            gradients = {f"gradient of {name}": value for name, value in zip(inputs, found)}
            return {"y": y, "mean": last_mean, "variance": last_variance, **gradients}

        yield Case(f"norm B {batch} L {length} D {width} G {groups} {dtype} masked {masked}", run, wanted)


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
    return {"y": torch.stack(outputs, 1), "mean": mean, "variance": variance}
