"""The paths of all operators: one vocabulary, former names, and an error in words where a forced path cannot run."""

from typing import Any, Dict

import pytest
import torch

from fairseq_mega.ops import (
    activation,
    attention,
    cross_entropy,
    decoding,
    dropout,
    ema,
    gate,
    linear,
    norm,
    packed_linear,
    query_key,
    rotary,
    timestep_norm,
)
from fairseq_mega.ops.common import native
from fairseq_mega.ops.common.dispatch import OPERATORS, VARIABLE
from tests.ops.ema_cases import coefficients_of, parameters

MODULES = {
    "activation": activation,
    "attention": attention,
    "cross_entropy": cross_entropy,
    "decoding": decoding,
    "dropout": dropout,
    "ema": ema,
    "gate": gate,
    "linear": linear,
    "norm": norm,
    "packed_linear": packed_linear,
    "query_key": query_key,
    "rotary": rotary,
    "timestep_norm": timestep_norm,
}


def call(operator, path, dtype=torch.float32):
    """Run a small call of an operator."""
    x, vector = torch.ones(2, 5, 3, dtype=dtype), torch.ones(3, dtype=dtype)
    if operator == "ema":
        coefficients = coefficients_of({name: tensor.to(dtype) for name, tensor in parameters().items()})
        return ema.damped_ema(x, coefficients, path=path)[0]
    if operator == "attention":
        return attention.attention(x, x, x, path=path)
    if operator == "gate":
        return gate.gated_residual(x, x, x, path=path)
    if operator == "activation":
        return activation.silu(x, path=path)
    if operator == "dropout":
        return dropout.dropout(x, 0.0, path=path)
    if operator == "norm":
        return norm.row_norm(x, centred=True, eps=1e-5, path=path)
    if operator == "query_key":
        return query_key.query_key(x, torch.ones(2, 3), torch.ones(2, 3), path=path)[0]
    if operator == "packed_linear":
        return packed_linear.packed_linear(x, packed_linear.pack(x[0], "bf16"), path=path)
    if operator == "linear":
        return linear.linear(x, x[0], path=path)
    if operator == "cross_entropy":
        return cross_entropy.cross_entropy(x[0], torch.ones(5, dtype=torch.int64), path=path)[0]
    if operator == "rotary":
        x, columns = torch.ones(2, 5, 4, dtype=dtype), torch.ones(2, 1, 4, dtype=dtype)
        options: Dict[str, Any] = {"first": 0, "chunk_size": 3, "base": 10.0, "eps": 1e-5}
        return rotary.normalized_query_key(x, columns, columns, **options, path=path)[0]
    return timestep_norm.timestep_norm(x, vector, vector, 1, path=path)[0]


CALLED = [operator for operator in OPERATORS if operator != "decoding"]  # whose choice no argument forces
NATIVE = [*((operator, "native") for operator in CALLED), ("ema", "native_fft"), ("attention", "native_blocks")]


def test_one_vocabulary():
    assert set(MODULES) == set(OPERATORS)
    for operator, module in MODULES.items():
        paths = module.PATHS
        assert paths.name == operator
        assert paths.names[0] == "reference" and "native" in paths.names
        assert all(name.split("_")[0] in ("reference", "torch", "native") for name in paths.names)


@pytest.mark.parametrize(("operator", "path"), NATIVE)
def test_a_forced_path_that_cannot_run_is_an_error(operator, path, monkeypatch):
    """Without the compiled kernels, and for types that they do not compute; else the reference serves."""
    monkeypatch.setattr(native, "PROBLEM", "_C.so is not beside the package")
    with pytest.raises(RuntimeError, match=f"^{operator} path '{path}' cannot run: .*{native.REMEDY[:30]}"):
        call(operator, path)
    torch.testing.assert_close(call(operator, None), call(operator, "reference"))
    monkeypatch.setattr(native, "PROBLEM", None)
    with pytest.raises(RuntimeError if path == "native_fft" else TypeError, match=f"^{operator} path '{path}'"):
        call(operator, path, torch.float64)
    torch.testing.assert_close(call(operator, None, torch.float64), call(operator, "reference", torch.float64))


@pytest.mark.parametrize("operator", CALLED)
def test_the_variable(operator, monkeypatch):
    for path in MODULES[operator].PATHS.names:
        if path.startswith("native") and (path == "native_fft" or native.PROBLEM is not None):
            continue
        want = call(operator, path)
        monkeypatch.setenv(VARIABLE, f"{operator}={path}")
        assert torch.equal(call(operator, None), want)


def test_native_is_pytorchs_on_devices_without_kernels():
    x, columns = torch.ones(2, 5, 3, device="meta"), torch.ones(2, 3, device="meta")
    found = [activation.silu(x), *query_key.query_key(x, columns, columns), norm.row_norm(x, centred=True, eps=1e-5)]
    assert all(out.shape == x.shape and out.device.type == "meta" for out in found)
