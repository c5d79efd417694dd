"""The choice of paths from their description: the automatic one, forced ones, their names and their errors."""

import pytest
import torch

from fairseq_mega.ops.common.dispatch import VARIABLE, Operator, Path


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
