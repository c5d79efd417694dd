"""The functions of a single step: kernels against the reference, the reference against operators on sequences."""

from typing import Any

import pytest
import torch

from fairseq_mega.ops import decoding
from fairseq_mega.ops.attention import attention as attend
from fairseq_mega.ops.common import native
from fairseq_mega.ops.decoding import native as compiled
from fairseq_mega.ops.decoding import reference
from fairseq_mega.ops.ema import EMACoefficients, damped_ema, ema_coefficients
from fairseq_mega.ops.gate import gated_residual
from tests.support.numerics import assert_close

PARTS = {"reference": reference.PARTS, "native": compiled.PARTS}
CASES = [("reference", torch.float64), ("reference", torch.float32)]
if native.PROBLEM is None:
    CASES.append(("native", torch.float32))


def draw(seed, *size):
    return torch.randn(size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def copies(tensors):
    return [tensor.clone() for tensor in tensors]


@pytest.mark.usefixtures("cpu_level")
@pytest.mark.parametrize("width, dims", [(11, 3), (16, 16), (5, 1)])
@pytest.mark.parametrize("fresh", [False, True])
@torch.no_grad()
def test_ema_step(width, dims, fresh):
    exact = ema_coefficients(*(draw(seed, width, dims) for seed in range(4)))
    omega, x, states = draw(4, width), draw(5, 3, width), [] if fresh else [draw(6, 3, width, dims)]
    average, last = damped_ema(x.unsqueeze(1), exact, state=states[0] if states else None, return_state=True)
    want: Any = torch.nn.functional.silu(average[:, 0] + omega * x), last
    results = {}
    for name, dtype in CASES:
        coefficients = decoding.step_coefficients(EMACoefficients(*(part.to(dtype) for part in exact)), omega.to(dtype))
        given = [x.to(dtype), *coefficients, *(state.to(dtype) for state in states)]
        before = copies(given)
        results[name, dtype] = PARTS[name].ema(given[0], coefficients, given[-1] if states else None)
        assert all(map(torch.equal, given, before)), "an input was written to"
    for index, part in enumerate(("output", "state")):
        torch.testing.assert_close(results["reference", torch.float64][index], want[index])
        low = results["reference", torch.float32][index]
        for name, dtype in CASES[1:]:
            assert_close(f"{part} by {name}", results[name, dtype][index], want[index], low)


@pytest.mark.usefixtures("cpu_level")
@pytest.mark.parametrize("function", ["softmax", "relu2", "laplace"])
@pytest.mark.parametrize("past", [0, 1, 6, 63, 64])
@torch.no_grad()
def test_attention_step(function, past):
    width, z, v = 11, 6, 13
    gates, value, bias = draw(1, 3, 2 * width + z + v), draw(2, 3, v), draw(3, past + 1)
    kappa, mu, old = draw(4, 2, z), draw(5, 2, z), (draw(6, 3, past, z), draw(7, 3, past, v))
    shared, reset = torch.nn.functional.silu(gates[:, width:-width]).split([z, v], dim=-1)
    key = torch.cat([old[0], (mu[1] + kappa[1] * shared).unsqueeze(1)], dim=1)
    values = torch.cat([old[1], torch.nn.functional.silu(value).unsqueeze(1)], dim=1)
    query = (mu[0] + kappa[0] * shared).unsqueeze(1)
    want = attend(query, key, values, function=function, bias=bias, path="reference")[:, 0] * reset, key, values
    results = {}
    for name, dtype in CASES:
        buffers = [decoding.TimeBuffer(steps.to(dtype)) for steps in old]
        given = [tensor.to(dtype) for tensor in (gates, value, kappa, mu, bias)]
        before = copies([*given, *(buffer.steps for buffer in buffers)])
        for again in range(2):  # a buffer may be continued twice
            out, *longer = PARTS[name].attention(*given, *buffers, function, None)
            results[name, dtype] = out, *(buffer.steps for buffer in longer)
            found = [*given, *(buffer.steps for buffer in buffers)]
            assert all(map(torch.equal, found, before)), f"an input was written to by call {again}"
    for index, part in enumerate(("output", "keys", "values")):
        torch.testing.assert_close(results["reference", torch.float64][index], want[index])
        low = results["reference", torch.float32][index]
        for name, dtype in CASES[1:]:
            assert_close(f"{part} by {name}", results[name, dtype][index], want[index], low)


@pytest.mark.usefixtures("cpu_level")
@pytest.mark.parametrize("width", [1, 7, 16])
@torch.no_grad()
def test_mix_step(width):
    residual, gates, projected = draw(1, 3, width), draw(2, 3, 2 * width + 5), draw(3, 3, width)
    update, candidate = gates[:, :width], gates[:, -width:]
    want = gated_residual(residual, update, candidate, projected, path="reference")
    given = [residual, gates, projected]
    torch.testing.assert_close(PARTS["reference"].mix(*given), want)
    given = [tensor.float() for tensor in given]
    low = PARTS["reference"].mix(*given)
    for name, _ in CASES[1:]:
        assert_close(f"output by {name}", PARTS[name].mix(*given), want, low)
    assert all(map(torch.equal, given, (residual.float(), gates.float(), projected.float())))
