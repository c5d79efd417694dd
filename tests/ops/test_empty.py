"""Inputs without steps or sequences: every path gives results of the right shape, the carried state and no gradient."""

from typing import Any, Dict

import pytest
import torch

from fairseq_mega.ops import ema, timestep_norm
from fairseq_mega.ops.attention import FUNCTIONS, attention, chunked_attention
from fairseq_mega.ops.attention import PATHS as ATTENTION_PATHS
from tests.ops.ema_cases import WIDTH, N, coefficients_of, complex_parameters, parameters
from tests.support.kernels import need_triton

EMPTY = ((2, 0), (0, 5), (0, 0))  # batch, length
MODES = ("causal", "carried", "complex", "documents", "carried documents", "bidirectional", "shifted", "truncated")


@pytest.fixture(autouse=True)
def poisoned_extension():
    """Fill with NaN what the extension allocates, too."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


def without_gradient(outputs, inputs):
    """Assert that all gradients of the sum of the outputs are there and zero."""
    total: Any = sum((torch.view_as_real(out) if out.is_complex() else out).sum() for out in outputs)
    for name, gradient in zip(inputs, torch.autograd.grad(total, list(inputs.values()))):
        assert gradient.eq(0).all(), f"gradient of {name}"


@pytest.mark.parametrize(("batch", "length"), EMPTY)
@pytest.mark.parametrize("path", ["reference", "torch_fft", "native", None])
@pytest.mark.parametrize("mode", MODES)
def test_ema(batch, length, path, mode, kernel_device):
    two_way, kind = mode in ("bidirectional", "shifted"), complex_parameters if mode == "complex" else parameters
    inputs = {name: value.float() for name, value in kind(WIDTH * (2 if two_way else 1)).items()}
    inputs = {name: value.to(kernel_device).requires_grad_() for name, value in inputs.items()}
    x = torch.randn(batch, length, WIDTH, device=kernel_device, requires_grad=True)
    options = {"bidirectional": two_way, "shift": mode == "shifted", "truncation": 3 if mode == "truncated" else None}
    if "documents" in mode:
        options["reset_mask"] = torch.zeros(batch, length, dtype=torch.bool, device=kernel_device)
    state = None
    if "carried" in mode:
        state = torch.randn(batch, WIDTH, N, device=kernel_device, requires_grad=True)
    returns = not two_way and mode != "truncated"
    coefficients = coefficients_of(inputs)
    last: Any
    y, last = ema.damped_ema(x, coefficients, state=state, return_state=returns, path=path, **options)
    assert y.shape == x.shape and y.dtype == x.dtype
    if returns:
        assert last.shape == (batch, WIDTH, N) and last.is_complex() == (mode == "complex")
        assert torch.equal(last, torch.zeros_like(last) if state is None else state)
    without_gradient([y] if state is not None or last is None else [y, last], {"x": x, **inputs})
    if state is not None and batch > 0:
        assert torch.autograd.grad(last.sum(), state)[0].eq(1).all()


def skip_missing(path, device):
    if path == "triton":
        need_triton()
    if path == "native_blocks" and device.type != "cpu":
        pytest.skip("this path is for tensors on a CPU")


@pytest.mark.parametrize(("batch", "queries", "keys"), [(0, 3, 3), (2, 0, 3), (2, 0, 0), (2, 3, 0)])
@pytest.mark.parametrize("path", [*ATTENTION_PATHS.names, None])
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("padded", [False, True])
def test_attention(batch, queries, keys, path, function, padded, kernel_device):
    skip_missing(path, kernel_device)
    shapes = {"q": (batch, queries, 4), "k": (batch, keys, 4), "v": (batch, keys, 6)}
    inputs: Dict[str, Any] = {
        name: torch.randn(shape, device=kernel_device, requires_grad=True) for name, shape in shapes.items()
    }
    bias = torch.randn(max(queries + keys - 1, 0), device=kernel_device, requires_grad=True)
    mask = torch.zeros(batch, keys, dtype=torch.bool, device=kernel_device) if padded else None
    for causal in (False, True) if queries <= keys else (False,):
        out = attention(**inputs, function=function, bias=bias, causal=causal, padding_mask=mask, path=path)
        assert out.shape == (batch, queries, 6) and out.eq(0).all()
        without_gradient([out], {**inputs, "bias": bias})
        with torch.no_grad():
            out = attention(**inputs, function=function, bias=bias, causal=causal, padding_mask=mask, path=path)
        assert out.shape == (batch, queries, 6) and out.eq(0).all()


@pytest.mark.parametrize(("batch", "length"), [*EMPTY, (0, 8)])
@pytest.mark.parametrize("path", [*ATTENTION_PATHS.names, None])
def test_chunked_attention(batch, length, path, kernel_device):
    skip_missing(path, kernel_device)
    inputs: Dict[str, Any] = {
        name: torch.randn(batch, length, 4, device=kernel_device, requires_grad=True) for name in "qkv"
    }
    bias = torch.randn(7, device=kernel_device, requires_grad=True)
    out = chunked_attention(**inputs, chunk_size=4, bias=bias, path=path)
    assert out.shape == (batch, length, 4)
    without_gradient([out], {**inputs, "bias": bias})


@pytest.mark.parametrize(("batch", "length"), EMPTY)
@pytest.mark.parametrize("path", ["reference", "torch", "native", None])
def test_timestep_norm(batch, length, path, kernel_device):
    inputs: Dict[str, Any] = {
        name: torch.randn(4, device=kernel_device, requires_grad=True) for name in ("weight", "bias")
    }
    x = torch.randn(batch, length, 4, device=kernel_device, requires_grad=True)
    y, state = timestep_norm.timestep_norm(x, groups=2, path=path, **inputs)
    assert y.shape == x.shape and state.mean.eq(0).all() and state.variance.eq(1).all() and state.count.eq(0).all()
    without_gradient([y], {"x": x, **inputs})
