"""Inputs and comparisons of the timestep norm's tests."""

import torch

from fairseq_mega.ops.timestep_norm import TimestepNormState, timestep_norm
from tests.support.numerics import GRADIENT_FACTOR, OUTPUT_FACTOR, assert_close, leaves, once

LENGTHS = (1, 2, 7, 64, 65, 131)
OTHER_WIDTHS = ((24, 1), (24, 2), (24, 24), (80, 2), (320, 1), (27, 9), (160, 5))  # 24, 12, 1, 40, 320, 3, 32 features
KNOWN_WIDTHS = ((20, 5), (24, 3), (48, 3), (160, 40))  # 4, 8, 16, which a CPU's compiler knows; several blocks
SHAPES = (*OTHER_WIDTHS, *KNOWN_WIDTHS)  # D, G
COUNTS = (0, 5, 3, 0, 40, 1)  # of the sequences; where it is 0, the carried mean and variance play no part
BATCH = len(COUNTS)


def draw(length, width=24, groups=2, batch=BATCH, seed=3):
    """Parameters, input and carried statistics in float64."""
    generator = torch.Generator().manual_seed(seed)
    normal = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)
    return {
        "x": normal(batch, length, width) * 1.5 + 0.7,
        "weight": 0.5 * normal(width),
        "bias": 0.5 * normal(width),
        "mean": normal(batch, groups),
        "variance": 0.2 + normal(batch, groups).square(),
    }


def call(tensors, path, count, mask=None):
    """y and the new state of one call."""
    state = TimestepNormState(count, tensors["mean"], tensors["variance"])
    groups = tensors["mean"].size(1)
    return timestep_norm(
        tensors["x"], tensors["weight"], tensors["bias"], groups, state=state, padding_mask=mask, path=path
    )


def run(tensors, path, counts=COUNTS, mask=None):
    """y, mean and variance of one call; its count is checked here."""
    count = torch.tensor(counts, device=tensors["x"].device)
    y, state = call(tensors, path, count, mask)
    steps = tensors["x"].size(1) if mask is None else (~mask).sum(1)
    assert torch.equal(state.count, count + steps)
    return {"y": y, "mean": state.mean, "variance": state.variance}


def exact(x, groups, origin, count=0, mean=0.0, variance=0.0):
    """Normalised x by sums in float64 around ``origin`` (weight and bias 0), independent of the recurrence.

    ``mean`` and ``variance``, of the ``count`` steps before, are numbers or of shape (B, 1, G).

    Returns:
        y (B, L, D), and mean and variance (B, G) of all steps.
    """
    values = x.double().unflatten(-1, (groups, -1)) - origin
    n = count + torch.arange(1, x.size(1) + 1, dtype=torch.float64).view(1, -1, 1)
    sums = values.mean(-1).cumsum(1) + count * (mean - origin)
    squares = values.square().mean(-1).cumsum(1) + count * (variance + (mean - origin) ** 2)
    means = sums / n
    variances = squares / n - means.square()
    y = (values - means.unsqueeze(-1)) / (variances + 1e-5).sqrt().unsqueeze(-1)
    return y.flatten(2), means[:, -1] + origin, variances[:, -1]


def gradients_from_all(outputs, inputs, dtype):
    """Gradients where every output has a random one, that of y exact in `dtype`."""
    generator = torch.Generator().manual_seed(0)
    grads = [torch.randn(value.shape, generator=generator).to(dtype).to(value) for value in outputs.values()]
    found = torch.autograd.grad(list(outputs.values()), list(inputs.values()), grads)
    return dict(zip(inputs, found))


def outputs_and_gradients(tensors, x_dtype, precision, dtype, path, device, counts, mask):
    """Both by name, with x in ``x_dtype``, all else in ``precision``, and y's gradient exact in ``dtype``.

    The statistics are in float64, but no more precise than ``precision``, in which those of a step are computed.
    """
    inputs = leaves({name: value.to(device) for name, value in tensors.items()}, precision)
    inputs["x"] = inputs["x"].detach().to(x_dtype).requires_grad_()
    outputs = run(inputs, path, counts, None if mask is None else mask.to(device))
    assert outputs["y"].dtype == x_dtype and outputs["mean"].dtype == outputs["variance"].dtype == torch.float64
    found = gradients_from_all(outputs, inputs, dtype)
    outputs.update({name: outputs[name].to(precision) for name in ("mean", "variance")})
    return tuple({name: value.detach().cpu() for name, value in part.items()} for part in (outputs, found))


def compare(tensors, dtype, path, device="cpu", counts=COUNTS, mask=None):
    """Run a path with x in `dtype` and compare with the recurrence in float64."""
    tensors = {**tensors, "x": tensors["x"].to(dtype).double()}  # the same numbers in every precision
    wide = dtype if dtype in (torch.float32, torch.float64) else torch.float32
    want, baselines = (
        once(outputs_and_gradients, tensors, *precisions, dtype, "reference", "cpu", counts, mask)
        for precisions in ((torch.float64, torch.float64), (dtype, wide))
    )
    got = outputs_and_gradients(tensors, dtype, wide, dtype, path, device, counts, mask)
    for index, factor in ((0, OUTPUT_FACTOR), (1, GRADIENT_FACTOR)):
        for name, value in want[index].items():
            label = name if index == 0 else f"gradient of {name}"
            baseline = None if dtype == torch.float64 else baselines[index][name]  # no truth is that exact
            assert_close(label, got[index][name], value, baseline, factor)


def padding(kind, length):
    """Masks that differ between even and odd sequences; `one` leaves a single step."""
    mask = torch.zeros(len(COUNTS), length, dtype=torch.bool)
    if kind == "left":
        mask[::2, : length // 2] = True
        mask[1::2, : length // 4] = True
    elif kind == "right":
        mask[::2, length // 2 :] = True
        mask[1::2, length - 1 :] = True
    elif kind == "interior":
        mask[:, 2::3] = True
        mask[1::2, length // 4 : length // 2] = True
    elif kind == "one":
        mask[:] = True
        mask[:, length // 2] = False
    else:
        mask[:] = True
    return mask
