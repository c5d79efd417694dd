"""Parameters, inputs and comparisons of the EMA's tests."""

from typing import Any, Dict

import torch

from fairseq_mega.ops.ema import EMACoefficients, damped_ema, ema_coefficients
from tests.support.numerics import GRADIENT_FACTOR, OUTPUT_FACTOR, assert_close, gradients, leaves, once

BATCH, WIDTH, N = 2, 3, 4
STREAMED = ("carried", "documents")
MODES = (*STREAMED, "causal", "bidirectional", "shifted", "two-way documents", "shifted documents")


def parameters(rows=WIDTH, n=N, spread=1.0, seed=1):
    generator = torch.Generator().manual_seed(seed)
    draw = {name: torch.randn(rows, n, generator=generator, dtype=torch.float64) for name in ("beta", "eta")}
    for name in ("alpha", "delta"):
        draw[name] = spread * torch.randn(rows, n, generator=generator, dtype=torch.float64)
    return draw


def complex_parameters(rows=WIDTH, n=N, seed=1):
    """Real parameters plus the angle of a step and the imaginary part of the projection."""
    generator = torch.Generator().manual_seed(seed + 100)
    extra = {name: torch.randn(rows, n, generator=generator, dtype=torch.float64) for name in ("theta", "eta_imag")}
    return {**parameters(rows, n, seed=seed), **extra}


def signal(length, batch=BATCH, seed=2, width=WIDTH):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, length, width, generator=generator, dtype=torch.float64)


def coefficients_of(tensors):
    found = ema_coefficients(*(tensors[name] for name in ("alpha", "delta", "beta", "eta")))
    if "theta" not in tensors:
        return found
    eta = torch.complex(found.projection, tensors["eta_imag"])
    return EMACoefficients(torch.complex(found.log_decay, tensors["theta"]), found.expansion, eta)


def run(tensors, path, **options):
    state = tensors.get("state")
    if "state_imag" in tensors:
        state = torch.complex(state, tensors["state_imag"])
    return damped_ema(tensors["x"], coefficients_of(tensors), state=state, path=path, **options)


def outputs_and_gradients(tensors, dtype, path, device="cpu", **options):
    """Outputs by name, and the gradients of a projection of all of them."""
    inputs = leaves({name: tensor.to(device) for name, tensor in tensors.items()}, dtype)
    masks = {name: value.to(device) if isinstance(value, torch.Tensor) else value for name, value in options.items()}
    y, state = run(inputs, path, **masks)
    if "padding_mask" in masks:  # outputs at padding inside a row have no meaning
        y = y.masked_fill(masks["padding_mask"].unsqueeze(-1), 0.0)
    outputs = {"y": y}
    if state is not None:
        outputs["state"] = torch.view_as_real(state) if state.is_complex() else state
    found = gradients(torch.cat([value.flatten() for value in outputs.values()]), inputs)
    return {name: value.detach().cpu() for name, value in outputs.items()}, {n: g.cpu() for n, g in found.items()}


def compare(tensors, dtype, path, device="cpu", **options):
    """Run a path in ``dtype`` and compare with the recurrence in float64: outputs, state and all gradients."""
    wanted = once(outputs_and_gradients, tensors, torch.float64, "reference", **options)
    baselines = once(outputs_and_gradients, tensors, dtype, "reference", **options)
    found = outputs_and_gradients(tensors, dtype, path, device, **options)
    # The rounding of an FFT goes with its largest terms, and no path can be measured by float64 in float64: RMS only.
    measured = dtype == torch.float32 and (path == "native" or "theta" not in tensors)
    for kind, factor, *dictionaries in (
        ("", OUTPUT_FACTOR, wanted[0], baselines[0], found[0]),
        ("gradient of ", GRADIENT_FACTOR, wanted[1], baselines[1], found[1]),
    ):
        want, baseline, got = dictionaries
        for name in want:
            assert_close(kind + name, got[name], want[name], baseline[name] if measured else None, factor)


def case(mode, length, kind="real", batch=BATCH, seed=7, width=WIDTH, n=N):
    """Tensors and options of one comparison."""
    bidirectional = mode not in (*STREAMED, "causal")
    rows = 2 * width if bidirectional else width
    tensors = complex_parameters(rows, n) if kind == "complex" else parameters(rows, n)
    tensors["x"] = signal(length, batch, width=width)
    generator = torch.Generator().manual_seed(seed)
    if mode in STREAMED:
        for name in ("state", "state_imag")[: 2 if kind == "complex" else 1]:
            tensors[name] = torch.randn(batch, width, n, generator=generator, dtype=torch.float64)
    options: Dict[str, Any] = {"bidirectional": bidirectional, "shift": "shifted" in mode}
    options["return_state"] = mode in STREAMED
    if "documents" in mode:
        options["reset_mask"] = torch.rand(batch, length, generator=generator) < 0.2
    return tensors, options
