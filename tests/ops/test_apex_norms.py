"""The norms with apex's kernels in their place: a stand-in of its interface gives the same outputs and gradients."""

import sys
from typing import Any, Iterator, List, Optional

import pytest
import torch

from fairseq_mega.modules.norm import build_norm
from fairseq_mega.ops.common import apex_norms
from tests.support import helpers

NORMS = ("layernorm", "rmsnorm", "scalenorm")


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> Iterator[List[str]]:
    """The stand-in as if it were on a GPU: what its kernels were called for."""
    monkeypatch.syspath_prepend(str(helpers.REPOSITORY / "tests" / "apex_stand_in"))
    for name in [name for name in sys.modules if name.split(".")[0] in ("apex", "fused_layer_norm_cuda")]:
        monkeypatch.delitem(sys.modules, name)
    possible = apex_norms.possible

    def on_a_gpu(x: torch.Tensor, weight: Optional[torch.Tensor]) -> bool:
        return possible(Disguised(x), weight)  # type: ignore[arg-type]

    monkeypatch.setattr(apex_norms, "possible", on_a_gpu)
    monkeypatch.setattr("fairseq_mega.ops.norm.for_apex", lambda x: True)
    for cached in (apex_norms.kernels, apex_norms.mode):
        cached.cache_clear()
    assert apex_norms.kernels() is not None
    yield sys.modules["fused_layer_norm_cuda"].USED
    for cached in (apex_norms.kernels, apex_norms.mode):
        cached.cache_clear()
    for name in [name for name in sys.modules if name.split(".")[0] in ("apex", "fused_layer_norm_cuda")]:
        del sys.modules[name]


class Disguised:
    """A tensor that says it is on a GPU."""

    is_cuda = True

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tensor, name)


def outcome(norm: torch.nn.Module, x: torch.Tensor) -> List[torch.Tensor]:
    """Output, and gradients of a weighted sum for the input and all parameters."""
    x = x.detach().requires_grad_()
    y = norm(x)
    factors = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)
    return [y.detach(), *torch.autograd.grad((y * factors).sum(), [x, *norm.parameters()])]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("kind", NORMS)
def test_apex_gives_what_torch_gives(
    monkeypatch: pytest.MonkeyPatch, used: List[str], kind: str, affine: bool, dtype: torch.dtype
) -> None:
    norm = build_norm(kind, 24, affine).to(dtype)
    for parameter in norm.parameters():
        torch.nn.init.normal_(parameter, 1.0, 0.3)
    x = 3 * torch.randn(2, 5, 24, dtype=dtype) + 1
    monkeypatch.setenv(apex_norms.VARIABLE, "off")
    apex_norms.mode.cache_clear()
    want = outcome(norm, x)
    assert used == []
    monkeypatch.setenv(apex_norms.VARIABLE, "on")
    apex_norms.mode.cache_clear()
    got = outcome(norm, x)
    assert used == ["layer" if kind == "layernorm" else "rms"]
    eps = torch.finfo(dtype).eps
    rtol, atol = (None, None) if dtype == torch.float32 else (4 * eps, 8 * eps)
    torch.testing.assert_close(got, want, rtol=rtol, atol=atol)


@pytest.mark.parametrize(
    "version, kind, dtype, shape, trains, taken",
    [
        ("2.13.0", "rmsnorm", torch.bfloat16, (2, 8), False, True),
        ("2.13.0", "scalenorm", torch.float16, (2, 8), True, True),
        ("2.9.0+cu126", "rmsnorm", torch.float32, (2, 8), True, False),
        ("2.8.0", "rmsnorm", torch.float32, (2, 8), True, True),
        ("2.8.1", "layernorm", torch.float32, (32768, 8), True, False),
        ("2.7.1", "layernorm", torch.float32, (32768, 8), True, True),
        ("2.7.1", "layernorm", torch.float32, (32768, 8), False, False),
        ("2.7.1", "layernorm", torch.float32, (32767, 8), True, False),
        ("2.7.1", "layernorm", torch.float16, (32768, 1025), True, False),
    ],
)
def test_rule(
    monkeypatch: pytest.MonkeyPatch,
    used: List[str],
    version: str,
    kind: str,
    dtype: torch.dtype,
    shape: tuple,
    trains: bool,
    taken: bool,
) -> None:
    monkeypatch.delenv(apex_norms.VARIABLE, raising=False)
    monkeypatch.setattr(torch, "__version__", version)
    norm = build_norm(kind, shape[-1]).to(dtype)
    with torch.set_grad_enabled(trains):
        norm(torch.ones(shape, dtype=dtype))
    assert len(used) == taken


def test_never_elsewhere(monkeypatch: pytest.MonkeyPatch, used: List[str]) -> None:
    """Not on the CPU, in autocast, of another type than the weight's, of nothing, while compiling, or in float64."""
    x, weight = torch.ones(2, 8), torch.ones(8)
    assert apex_norms.possible(x, weight)
    assert not apex_norms.possible(x, weight.half())
    assert not apex_norms.possible(x[:0], weight)
    assert not apex_norms.possible(x.double(), weight.double())
    with monkeypatch.context() as within:
        within.setattr(torch, "is_autocast_enabled", lambda kind: kind == "cuda")
        assert not apex_norms.possible(x, weight)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert not apex_norms.possible(x, weight)
    monkeypatch.undo()
    assert not apex_norms.possible(x, weight)
