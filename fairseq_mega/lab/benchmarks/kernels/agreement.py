"""Comparison of the measured paths with the reference."""

from typing import List

import torch

from fairseq_mega.lab.benchmarks.kernels.cases import missing
from fairseq_mega.lab.benchmarks.kernels.operators import Op, leaves
from fairseq_mega.lab.benchmarks.kernels.shapes import Shape

# Largest error of a path, relative to the norm of the result. Laplace weights that torch computes in bfloat16, as the
# published code does, lose most of their digits to 1 + erf where they are small.
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.15}
SMALLEST_NORM = 0.1  # a result that is exactly zero, for instance with a single softmax weight, has an error too


def disagreements(op: Op, shape: Shape, device: torch.device, dtype: torch.dtype = torch.float32) -> List[str]:
    """List the outputs and gradients of the paths that differ from the reference in float64 on the same numbers."""
    drawn = op.draw(shape, torch.Generator().manual_seed(1))
    drawn = {name: value.to(dtype).double() for name, value in drawn.items()}
    weights = None
    results = {}
    for name, run in {"reference": op.reference, **{name: path.run for name, path in op.paths.items()}}.items():
        if name != "reference" and missing(op.paths[name], device) is not None:
            continue
        exact = name == "reference"
        place = torch.device("cpu") if exact else device
        inputs = leaves(drawn, torch.float64 if exact else dtype, place)
        y = run(inputs, shape)
        if weights is None:
            weights = torch.randn(y.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
        found = torch.autograd.grad(y, list(inputs.values()), weights.to(y), allow_unused=True)
        outputs = {"output": y}
        for key, leaf, value in zip(inputs, inputs.values(), found):
            outputs[f"gradient of {key}"] = torch.zeros_like(leaf) if value is None else value
        results[name] = {key: value.detach().cpu().double() for key, value in outputs.items()}
    found_wrong = []
    for name, outputs in results.items():
        for key, want in results["reference"].items():
            error = ((outputs[key] - want).norm() / want.norm().clamp(min=SMALLEST_NORM)).item()
            if not error < TOLERANCE[dtype]:  # NaN is wrong too
                found_wrong.append(f"{op.title}, {name}, L = {shape.length}: {key} is off by {error:.2g}")
    return found_wrong
