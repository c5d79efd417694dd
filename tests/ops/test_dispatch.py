"""The choice of paths from their description: the automatic one, forced ones, their names and their errors."""

import importlib
from typing import Any, Callable, Dict

import pytest
import torch

from fairseq_mega.ops.common import native
from fairseq_mega.ops.common.dispatch import OPERATORS, VARIABLE, Operator, Path
from fairseq_mega.ops.dropout import dropout
from fairseq_mega.ops.ema import ema_coefficients
from tests.ops.test_transforms import OPERATORS as OPERATORS_OF_X


def too_long(x: torch.Tensor, *call: object) -> "str | None":
    return f"it accepts up to 4 steps, found {x.size(0)}" if x.size(0) > 4 else None


EMA = Operator(
    "ema",
    Path("reference"),
    Path("torch_fft"),
    Path("native", too_long, (torch.float32,)),
    Path("native_fft", too_long, suits=lambda x: x.size(0) == 3),
)
NORM = Operator("timestep_norm", Path("reference"), Path("native"))


@pytest.fixture(autouse=True)
def no_variable(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)


@pytest.mark.parametrize(
    ("length", "dtype", "chosen"),
    [
        (2, torch.float32, "native"),
        (3, torch.float32, "native_fft"),
        (3, torch.float64, "native_fft"),
        (2, torch.float64, "torch_fft"),
        (5, torch.float32, "torch_fft"),
    ],
)
def test_the_fastest_path_that_suits_and_runs_is_chosen(length, dtype, chosen):
    assert EMA.choose(None, torch.zeros(length, dtype=dtype)) == chosen


def test_preferences_bind_the_automatic_choice_only():
    assert EMA.choose("native_fft", torch.zeros(2)) == "native_fft"


def test_the_argument_precedes_the_variable(monkeypatch):
    x = torch.zeros(2)
    monkeypatch.setenv(VARIABLE, "timestep_norm=reference")
    assert EMA.choose(None, x) == "native"
    assert NORM.choose(None, x) == "reference"
    monkeypatch.setenv(VARIABLE, "ema=torch_fft")
    assert EMA.choose(None, x) == "torch_fft"
    assert EMA.choose("native_fft", x) == "native_fft"
    assert EMA.choose("auto", x) == "native"


@pytest.mark.parametrize(
    ("text", "ema", "norm"),
    [
        ("reference", "reference", "reference"),
        ("native", "native", "native"),
        ("auto", "auto", "auto"),
        ("", "auto", "auto"),
        ("reference,ema=native_fft", "native_fft", "reference"),
        ("ema=native_fft,reference", "reference", "reference"),
        (" ema = native , timestep_norm=auto ", "native", "auto"),
        ("ema=auto", "auto", "auto"),
    ],
)
def test_one_variable_serves_all_operators(monkeypatch, text, ema, norm):
    monkeypatch.setenv(VARIABLE, text)
    assert (EMA.forced(), NORM.forced()) == (ema, norm)


@pytest.mark.parametrize("text", ["fast", "ema=native,", "fft=native", "ema=fast", "ema="])
def test_a_variable_that_cannot_be_read_is_an_error(monkeypatch, text):
    with pytest.raises(ValueError, match="argument `path`"):
        EMA.choose("quick", torch.zeros(2))
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(ValueError, match=f"{VARIABLE}={text}"):
        EMA.choose(None, torch.zeros(2))


def test_the_choice_stays_in_one_graph(monkeypatch):
    torch._dynamo.reset()
    monkeypatch.setenv(VARIABLE, "timestep_norm=reference")

    @torch.compile(fullgraph=True, backend="eager")
    def function(x: torch.Tensor) -> torch.Tensor:
        x = x + (1 if EMA.choose(None, x) == "native" else 0)
        return x + (2 if NORM.choose(None, x) == "reference" else 0)

    assert torch.equal(function(torch.zeros(2)), torch.full((2,), 3.0))
    assert torch.equal(function(torch.zeros(5)), torch.full((5,), 2.0))


# A function of each operator whose path an argument forces, of x (B, L, 32) and the path.
CALLS: Dict[str, Callable[..., Any]] = {
    **{name: OPERATORS_OF_X[name] for name in ("cross_entropy", "ema", "gate", "linear", "query_key", "rotary")},
    "activation": OPERATORS_OF_X["silu"],
    "attention": OPERATORS_OF_X["laplace"],
    "norm": OPERATORS_OF_X["layer norm"],
    "packed_linear": OPERATORS_OF_X["packed"],
    "timestep_norm": OPERATORS_OF_X["timestep_norm"],
    "dropout": lambda x, **path: dropout(x, 0.0, **path),
    "ema_coefficients": lambda x, **path: ema_coefficients(*x.flatten(0, 1).split(16), **path).log_decay,
}
NATIVE = [*((operator, "native") for operator in CALLS), ("ema", "native_fft"), ("attention", "native_blocks")]
X = torch.randn(2, 32, 32, generator=torch.Generator().manual_seed(1))


def paths_of(operator: str) -> Operator:
    module = "ema.coefficients" if operator == "ema_coefficients" else operator
    return importlib.import_module(f"fairseq_mega.ops.{module}").PATHS


def test_one_vocabulary(monkeypatch):
    monkeypatch.setenv(VARIABLE, "reference")
    assert set(CALLS) == set(OPERATORS) - {"decoding"}  # whose choice no argument forces
    for operator in OPERATORS:
        paths = paths_of(operator)
        assert paths.name == operator and paths.forced() == "reference"
        assert paths.names[0] == "reference" and "native" in paths.names
        assert all(name.split("_")[0] in ("reference", "torch", "native", "triton") for name in paths.names)


@pytest.mark.parametrize(("operator", "path"), NATIVE)
def test_a_forced_path_that_cannot_run_is_an_error(operator, path, monkeypatch):
    """Without the compiled kernels, and for types that they do not compute; else the reference serves."""
    call = CALLS[operator]
    monkeypatch.setattr(native, "PROBLEM", "_C.so is not beside the package")
    with pytest.raises(RuntimeError, match=f"^{operator} path '{path}' cannot run: .*{native.REMEDY[:30]}"):
        call(X, path=path)
    torch.testing.assert_close(call(X), call(X, path="reference"), rtol=1e-4, atol=1e-5)
    monkeypatch.setattr(native, "PROBLEM", None)
    with pytest.raises(RuntimeError if path == "native_fft" else TypeError, match=f"^{operator} path '{path}'"):
        call(X.double(), path=path)
    torch.testing.assert_close(call(X.double()), call(X.double(), path="reference"))


@pytest.mark.parametrize("operator", CALLS)
def test_the_variable_of_each_operator(operator, monkeypatch):
    for path in paths_of(operator).names:
        if path in ("native_fft", "triton") or (path.startswith("native") and native.PROBLEM is not None):
            continue
        want = CALLS[operator](X, path=path)
        monkeypatch.setenv(VARIABLE, f"{operator}={path}")
        assert paths_of(operator).forced() == path
        torch.testing.assert_close(CALLS[operator](X), want, rtol=1e-5, atol=1e-5)
