"""The paths of all operators: one vocabulary, former names, and an error in words where a forced path cannot run."""

from typing import Any, Dict

import pytest
import torch

from fairseq_mega.ops import (
    activation,
    attention,
    cross_entropy,
    ema,
    gate,
    native,
    packed_linear,
    rotary,
    step,
    timestep_norm,
)
from fairseq_mega.ops import linear as maps
from fairseq_mega.ops.dispatch import FORMER_NAMES, VARIABLE
from tests.ops.ema_cases import coefficients_of, parameters

MODULES = (ema, attention, gate, timestep_norm, step, packed_linear)
OPERATORS = {module.PATHS.name: module.PATHS for module in MODULES}
OPERATORS["linear"] = maps.PATHS
OPERATORS["rotary"] = rotary.PATHS
OPERATORS["cross_entropy"] = cross_entropy.PATHS


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
    if operator == "packed_linear":
        return packed_linear.packed_linear(x, packed_linear.pack(x[0], "bf16"), path=path)
    if operator == "linear":
        return maps.linear(x, x[0], path=path)
    if operator == "cross_entropy":
        return cross_entropy.cross_entropy(x[0], torch.ones(5, dtype=torch.int64), path=path)[0]
    if operator == "rotary":
        x, columns = torch.ones(2, 5, 4, dtype=dtype), torch.ones(2, 1, 4, dtype=dtype)
        options: Dict[str, Any] = {"first": 0, "chunk_size": 3, "base": 10.0, "eps": 1e-5}
        return rotary.normalized_query_key(x, columns, columns, **options, path=path)[0]
    return timestep_norm.timestep_norm(x, vector, vector, 1, path=path)[0]


NATIVE = [("ema", "native"), ("ema", "native_fft"), ("attention", "native"), ("gate", "native")]
NATIVE += [("attention", "native_blocks"), ("timestep_norm", "native"), ("packed_linear", "native")]
NATIVE += [("linear", "native"), ("rotary", "native"), ("cross_entropy", "native")]


def test_one_vocabulary():
    assert list(OPERATORS) == list(FORMER_NAMES)
    for operator, paths in OPERATORS.items():
        assert paths.names[0] == "reference" and "native" in paths.names
        assert all(name.split("_")[0] in ("reference", "torch", "native") for name in paths.names)
        assert set(FORMER_NAMES[operator].values()) <= set(paths.names)
        assert not set(FORMER_NAMES[operator]) & set(paths.names)


@pytest.mark.parametrize(("operator", "path"), NATIVE)
def test_without_the_extension_a_forced_path_names_the_command(operator, path, monkeypatch):
    monkeypatch.setattr(native, "PROBLEM", "_C.so is not beside the package")
    problem = "it needs the compiled kernels, which cannot be used: _C.so is not beside the package; build it with: "
    with pytest.raises(RuntimeError, match=f"^{operator} path '{path}' cannot run: {problem}FAIRSEQ_MEGA_BUILD=cpu "):
        call(operator, path)
    torch.testing.assert_close(call(operator, None), call(operator, "reference"))


@pytest.mark.parametrize(("operator", "path"), [pair for pair in NATIVE if pair[1] == "native"])
def test_other_types_than_those_of_the_kernels(operator, path, monkeypatch):
    monkeypatch.setattr(native, "PROBLEM", None)
    message = f"^{operator} path '{path}' computes float32, bfloat16 and float16, found torch.float64$"
    with pytest.raises(TypeError, match=message):
        call(operator, path, torch.float64)
    torch.testing.assert_close(call(operator, None, torch.float64), call(operator, "reference", torch.float64))


def test_the_fft_of_the_kernels_is_for_gpus(monkeypatch):
    monkeypatch.setattr(native, "PROBLEM", None)
    message = "ema path 'native_fft' cannot run: there are no compiled kernels for tensors on cpu; use torch's FFT"
    with pytest.raises(RuntimeError, match=message):
        call("ema", "native_fft")


@pytest.mark.parametrize("operator", [name for name in OPERATORS if name != "decoding"])
def test_former_names_and_variables(operator, monkeypatch):
    for former, name in {**FORMER_NAMES[operator], "reference": "reference"}.items():
        if name == "native_fft" or (name == "native" and native.PROBLEM is not None):
            continue
        want = call(operator, name)
        assert torch.equal(call(operator, former), want)
        monkeypatch.setenv(f"FAIRSEQ_MEGA_{operator.upper()}_PATH", former)
        assert torch.equal(call(operator, None), want)
        monkeypatch.setenv(VARIABLE, f"{operator}={former}")
        assert torch.equal(call(operator, None), want)
        monkeypatch.delenv(VARIABLE)


@pytest.mark.parametrize("path", ["reference", None])
def test_a_tensor_on_another_device_is_an_error_in_words(path):
    x, vector = torch.ones(2, 5, 3), torch.ones(3)
    mask = torch.zeros(2, 5, dtype=torch.bool, device="meta")
    coefficients = coefficients_of({name: tensor.float() for name, tensor in parameters().items()})
    with pytest.raises(RuntimeError, match="EMA: padding_mask is on meta, x on cpu; move them to one device"):
        ema.damped_ema(x, coefficients, padding_mask=mask, path=path)
    with pytest.raises(RuntimeError, match="attention: padding_mask is on meta, q on cpu; move them to one device"):
        attention.attention(x, x, x, padding_mask=mask, path=path)
    with pytest.raises(RuntimeError, match="gate: candidate is on meta, residual on cpu; move them to one device"):
        gate.gated_residual(x, x, x.to("meta"), path=path)
    with pytest.raises(RuntimeError, match="timestep norm: padding mask is on meta, x on cpu; move them to one device"):
        timestep_norm.timestep_norm(x, vector, vector, 1, padding_mask=mask, path=path)


def test_activations_follow_the_gate(monkeypatch):
    """They have its name and its paths; "native" means PyTorch's own on devices without kernels."""
    x, columns = torch.randn(2, 5, 3), torch.randn(2, 3)
    for name in gate.PATHS.names:
        assert name in activation.PATHS.names and activation.PATHS.name == gate.PATHS.name
    on_meta = activation.silu(x.to("meta")), *attention.query_key(x.to("meta"), columns.to("meta"), columns.to("meta"))
    assert all(out.shape == x.shape and out.device.type == "meta" for out in on_meta)
    with pytest.raises(TypeError, match="^gate path 'native' computes float32, .* found torch.float64"):
        monkeypatch.setattr(native, "PROBLEM", None)
        activation.silu(x.double(), path="native")
    with pytest.raises(RuntimeError, match="gate: factor is on meta, x on cpu; move them to one device"):
        activation.silu(x, x.to("meta"))
