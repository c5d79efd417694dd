"""The paths of the timestep norm."""

from typing import Callable

import torch
from torch import Tensor

from fairseq_mega.lab.benchmarks.kernels.operators import Inputs, Op, OpPath, normal
from fairseq_mega.lab.benchmarks.kernels.shapes import Shape
from fairseq_mega.ops.timestep_norm import timestep_norm


def draw_norm(shape: Shape, generator: torch.Generator) -> Inputs:
    return {
        "x": normal(generator, shape.batch, shape.length, shape.width),
        "weight": 0.1 * normal(generator, shape.width),
        "bias": 0.1 * normal(generator, shape.width),
    }


def norm_op() -> Op:
    """The timestep norm, from a fresh state."""

    def ours(path: str) -> Callable[[Inputs, Shape], Tensor]:
        return lambda inputs, shape: timestep_norm(
            inputs["x"], inputs["weight"], inputs["bias"], shape.groups, path=path
        )[0]

    floats = lambda shape: 4 * shape.batch * shape.width * shape.length
    return Op(
        title="timestep norm",
        draw=draw_norm,
        reference=ours("reference"),
        paths={
            "native": OpPath(ours("native"), lambda shape: 6 * floats(shape), compiled=True),
            "torch": OpPath(ours("torch"), lambda shape: 16 * floats(shape)),
        },
        baseline="torch",
        forward=lambda shape: 2 * shape.batch * shape.width * shape.length,
        backward=lambda shape: 3 * shape.batch * shape.width * shape.length,
    )
