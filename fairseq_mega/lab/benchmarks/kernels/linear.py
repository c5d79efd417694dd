"""The paths of linear maps."""

from typing import Callable

import torch
from torch import Tensor

from fairseq_mega.lab.benchmarks.kernels.operators import Inputs, Op, OpPath, normal
from fairseq_mega.lab.benchmarks.kernels.shapes import Shape
from fairseq_mega.ops.linear import linear


def draw_map(shape: Shape, generator: torch.Generator) -> Inputs:
    inputs, outputs = shape.width, shape.values_width
    return {
        "x": normal(generator, shape.batch, shape.length, inputs),
        "weight": normal(generator, outputs, inputs) * inputs**-0.5,
        "bias": 0.1 * normal(generator, outputs),
    }


def linear_op() -> Op:
    """A map from the model's width to the values' width: its product, and the two products of its gradients."""

    def ours(path: str) -> Callable[[Inputs, Shape], Tensor]:
        return lambda inputs, shape: linear(inputs["x"], inputs["weight"], inputs["bias"], path=path)

    numbers = lambda shape: shape.batch * shape.length * (shape.width + shape.values_width)
    return Op(
        title="linear map",
        draw=draw_map,
        reference=ours("reference"),
        paths={
            "native": OpPath(ours("native"), lambda shape: 16 * numbers(shape), compiled=True),
            "torch": OpPath(ours("reference"), lambda shape: 16 * numbers(shape)),
        },
        baseline="torch",
        forward=numbers,
        backward=lambda shape: 2 * numbers(shape),
        products=lambda shape: 6 * shape.batch * shape.length * shape.width * shape.values_width,
    )
