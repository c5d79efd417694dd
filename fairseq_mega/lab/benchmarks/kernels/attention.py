"""The paths of attention, with explicit weights and torch's fused attention for comparison."""

from typing import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_mega.lab.benchmarks.kernels.operators import Inputs, Op, OpPath, normal
from fairseq_mega.lab.benchmarks.kernels.shapes import Shape
from fairseq_mega.ops.attention import attention


def attention_op(title: str, function: str, biased: bool) -> Op:
    """Attention of one head, in chunks if the shape has chunks.

    Without a relative bias and with values as wide as the queries, torch's own fused attention is among the paths: only
    for equal widths does it form no L x L matrix.
    """
    values = lambda shape: shape.values_width if biased else shape.queries_width

    def draw(shape: Shape, generator: torch.Generator) -> Inputs:
        widths = {"q": shape.queries_width, "k": shape.queries_width, "v": values(shape)}
        inputs = {name: normal(generator, *shape.chunks, width) for name, width in widths.items()}
        return {**inputs, "bias": 0.1 * normal(generator, 2 * shape.chunks[1] - 1)} if biased else inputs

    def ours(path: str) -> Callable[[Inputs, Shape], Tensor]:
        def run(inputs: Inputs, shape: Shape) -> Tensor:
            bias = inputs.get("bias")
            return attention(inputs["q"], inputs["k"], inputs["v"], function=function, bias=bias, path=path)

        return run

    def sdpa(inputs: Inputs, shape: Shape) -> Tensor:
        return F.scaled_dot_product_attention(inputs["q"], inputs["k"], inputs["v"])

    inputs_bytes = lambda shape: 4 * shape.batch * shape.length * (2 * shape.queries_width + 2 * values(shape))
    weights = lambda shape: 4 * shape.chunks[0] * shape.chunks[1] ** 2
    linear = lambda shape: 8 * inputs_bytes(shape) + 2**28
    # Per weight z forward and 3 z backward, v forward and 2 v backward: a multiplication and an addition each.
    products = lambda shape: shape.chunks[0] * shape.chunks[1] ** 2 * (8 * shape.queries_width + 6 * values(shape))
    paths = {  # keys: names in results
        "blockwise": OpPath(ours("torch_blockwise"), linear),
        "fused": OpPath(ours("native"), linear, compiled=True),
        "blocks": OpPath(ours("native_blocks"), linear, compiled=True, cpu_only=True),
        "explicit": OpPath(ours("reference"), lambda shape: 6 * weights(shape) + linear(shape)),
    }
    if biased:
        paths["dense"] = OpPath(ours("torch"), lambda shape: 6 * weights(shape) + linear(shape))
    else:
        paths["SDPA"] = OpPath(sdpa, linear)
    return Op(
        title=title,
        draw=draw,
        reference=ours("reference"),
        paths=paths,
        baseline="explicit",
        # Reads q, k, v and writes y; then reads q, k, v and grad y and writes three gradients.
        forward=lambda shape: 2 * shape.batch * shape.length * (shape.queries_width + values(shape)),
        backward=lambda shape: shape.batch * shape.length * (4 * shape.queries_width + 3 * values(shape)),
        quadratic=True,
        products=products,
    )
