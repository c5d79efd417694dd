"""Derivatives by torch.func and in forward mode: right or refused for every operator, never lost.

Each function under test maps a few coefficients of fixed directions to two numbers, so that whole Jacobians are small
while the tensors are large enough for the compiled kernels.
"""

import os
from functools import lru_cache
from typing import Any, Callable, Dict, List
from unittest import mock

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

from fairseq_mega.modules.config import MegaLayerConfig
from fairseq_mega.modules.gated_attention import GatedAttention
from fairseq_mega.modules.megalodon.config import MegalodonLayerConfig
from fairseq_mega.modules.megalodon.layer import MegalodonLayer
from fairseq_mega.ops.activation import silu
from fairseq_mega.ops.attention import attention, chunked_attention, multi_head_attention
from fairseq_mega.ops.common import native
from fairseq_mega.ops.common.dispatch import Operator
from fairseq_mega.ops.cross_entropy import cross_entropy
from fairseq_mega.ops.dropout import dropout
from fairseq_mega.ops.ema import EMACoefficients, damped_ema, gated_ema
from fairseq_mega.ops.gate import gated_residual
from fairseq_mega.ops.linear import linear, linear_parts, silu_linear
from fairseq_mega.ops.norm import row_norm
from fairseq_mega.ops.packed_linear import pack, packed_linear
from fairseq_mega.ops.query_key import query_key
from fairseq_mega.ops.rotary import normalized_query_key
from fairseq_mega.ops.timestep_norm import timestep_norm

DIRECTIONS = 3


def drawn(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


X = drawn(4, 256, 32)
SQUARE, WIDE = drawn(32, 32, seed=2) / 6, drawn(160, 32, seed=2) / 6
COLUMNS = torch.linspace(0.5, 1.5, 64, dtype=torch.float64).view(2, 32)
DECAY, EXPANSION = -drawn(64, 4, seed=3).abs() / 9, drawn(64, 4, seed=4)


def coefficients(x: Tensor, rows: int = 32, imaginary: float = 0.0) -> EMACoefficients:
    decay, expansion = DECAY[:rows].to(x), EXPANSION[:rows].to(x)
    if imaginary:
        return EMACoefficients(torch.complex(decay, imaginary * expansion), expansion, torch.complex(expansion, decay))
    return EMACoefficients(decay, expansion, expansion)


def last_state(x: Tensor, **path: Any) -> Tensor:
    state = damped_ema(x, coefficients(x), state=x[:, :4].mT, return_state=True, **path)[1]
    assert state is not None
    return state


def rotary(x: Tensor, **path: Any) -> Tensor:
    columns = COLUMNS.to(x).view(2, 2, 16)
    return torch.cat(normalized_query_key(x, columns, columns, first=0, chunk_size=8, base=9.0, eps=1e-5, **path), -1)


def losses(x: Tensor, **path: Any) -> Tensor:
    return cross_entropy(x.flatten(0, -2), torch.arange(x[..., 0].numel()) % 32, **path)[0]


def heads(x: Tensor) -> Tensor:
    split = x.unflatten(-1, (2, 16)).transpose(-3, -2)
    return multi_head_attention(split, split, split, causal=True)


# Functions of x (B, L, 32) and of the path.
OPERATORS: Dict[str, Callable[..., Tensor]] = {
    "silu": lambda x, **path: silu(x, x.flip(1), **path),
    "silu of a skip": lambda x, **path: silu(x, skip=x.flip(1), omega=COLUMNS[0].to(x), **path),
    "query_key": lambda x, **path: torch.cat(query_key(x, COLUMNS.to(x), COLUMNS.to(x), **path), -1),
    "layer norm": lambda x, **path: row_norm(x, *COLUMNS.to(x), centred=True, eps=1e-5, **path),
    "rms norm": lambda x, **path: row_norm(x, COLUMNS[0].to(x), centred=False, eps=1e-5, **path),
    "cross_entropy": losses,
    "gate": lambda x, **path: gated_residual(x, x.flip(1), x.roll(1, 1), x, **path),
    "softmax": lambda x, **path: attention(
        x, x.flip(1), x, bias=COLUMNS.to(x).mean() * x[0, :, 0].repeat(2)[1:], **path
    ),
    "laplace": lambda x, **path: attention(x, x, x, function="laplace", causal=True, **path),
    "chunks": lambda x, **path: chunked_attention(x, x, x, 64, **path),
    "ema": lambda x, **path: damped_ema(x, coefficients(x), **path)[0],
    "complex ema": lambda x, **path: damped_ema(x, coefficients(x, imaginary=0.3), **path)[0],
    "both directions": lambda x, **path: damped_ema(x, coefficients(x, 64), bidirectional=True, **path)[0],
    "a piece": last_state,
    "timestep_norm": lambda x, **path: timestep_norm(x, COLUMNS[0].to(x), COLUMNS[1].to(x), 2, **path)[0],
    "rotary": rotary,
    "linear": lambda x, **path: linear(x, WIDE.to(x), WIDE[:, 0].to(x), **path),
    "parts": lambda x, **path: torch.cat(linear_parts(x, WIDE.to(x), None, (64, 64, 32), **path), -1),
    "silu_linear": lambda x, **path: silu_linear(x, x.flip(1), WIDE.to(x), **path),
    "packed": lambda x, **path: packed_linear(x[0, :8], pack(WIDE.to(x), "bf16"), **path),
}
# Functions that have no argument for the path, or compute without gradients.
WITHOUT_PATH: Dict[str, Callable[..., Tensor]] = {
    "heads": heads,
    "gated ema": lambda x: gated_ema(x, coefficients(x), COLUMNS[0].to(x))[0],
    "single steps": lambda x: gated_ema(x[:, :1], coefficients(x), COLUMNS[0].to(x), return_state=True)[0],
    "a step of the norm": lambda x: timestep_norm(x[:, :1], COLUMNS[0].to(x), COLUMNS[1].to(x), 2)[0],
}
FUNCTIONS = {**OPERATORS, **WITHOUT_PATH}
WITHOUT_GRADIENTS = ("packed", "single steps", "a step of the norm")

needs_kernels = pytest.mark.skipif(native.PROBLEM is not None, reason=f"no compiled kernels: {native.PROBLEM}")


def projected(function: Callable[[Tensor], Tensor], x: Tensor) -> Callable[[Tensor], Tensor]:
    """Return two sums of ``function`` as a function of the coefficients (DIRECTIONS,) of changes of x."""
    changes = drawn(DIRECTIONS, *x.shape, seed=5).to(x)

    def of_coefficients(t: Tensor) -> Tensor:
        out = function(x + torch.tensordot(t, changes, 1)).flatten()
        return torch.stack([(out * torch.cos(speed * torch.arange(out.numel()).to(out))).mean() for speed in (1, 2)])

    return of_coefficients


def by_dual_numbers(f: Callable[[Tensor], Tensor], t: Tensor) -> Tensor:
    with forward_ad.dual_level():
        columns = [forward_ad.unpack_dual(f(forward_ad.make_dual(t, u))).tangent for u in torch.eye(len(t)).to(t)]
    return torch.stack(columns, dim=1)


# Each returns the Jacobian (2, DIRECTIONS) of f at t, by one kind of derivatives.
JACOBIANS: Dict[str, Callable[[Callable[[Tensor], Tensor], Tensor], Tensor]] = {
    "jvp": lambda f, t: torch.stack([jvp(f, (t,), (u,))[1] for u in torch.eye(len(t)).to(t)], dim=1),
    "vjp": lambda f, t: torch.stack([vjp(f, t)[1](u)[0] for u in torch.eye(2).to(t)]),
    "forward_ad": by_dual_numbers,
    "jacfwd": lambda f, t: jacfwd(f)(t),
    "jacrev": lambda f, t: jacrev(f)(t),
    "grad": lambda f, t: torch.stack([grad(lambda s, i=i: f(s)[i])(t) for i in (0, 1)]),
    "vmap(grad)": lambda f, t: vmap(grad(lambda u, s: (u * f(s)).sum(), 1), (0, None))(torch.eye(2).to(t), t),
}


@lru_cache(maxsize=None)
def expected(name: str, squared: bool = False) -> Tensor:
    """The Jacobian by the references, in float64 and by ordinary gradients; of squares the Hessian of the first sum."""
    function = FUNCTIONS[name]
    f, t = projected(lambda x: function(x).square() if squared else function(x), X), torch.zeros(DIRECTIONS).double()
    with mock.patch.dict(os.environ, FAIRSEQ_MEGA_PATHS="reference"):
        if squared:
            return torch.autograd.functional.hessian(lambda s: f(s)[0], t)
        return torch.autograd.functional.jacobian(f, t)


def assert_near(got: Tensor, want: Tensor, message: str) -> None:
    scale = want.abs().max().item()
    assert scale > 1e-5, f"{message}: as good as zero, so that a lost derivative would pass"
    tolerance = {torch.float32: 2e-4, torch.float64: 1e-9}[got.dtype]
    difference = (got.double() - want).abs().max().item()
    assert difference <= tolerance * scale, f"{message}: differs by {difference:.3g} of {scale:.3g}"


@pytest.fixture
def chosen(monkeypatch: Any) -> List[str]:
    """The paths that operators chose."""
    names: List[str] = []
    choose = Operator.choose

    def listed(self: Operator, *arguments: Any) -> str:
        names.append(choose(self, *arguments))
        return names[-1]

    monkeypatch.setattr(Operator, "choose", listed)
    return names


def is_native(names: List[str]) -> bool:
    return any(name.startswith("native") for name in names)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_first_derivatives(name: str, dtype: torch.dtype, chosen: List[str]) -> None:
    want = expected(name)
    f, t = projected(FUNCTIONS[name], X.to(dtype)), torch.zeros(DIRECTIONS, dtype=dtype)
    for kind, transform in JACOBIANS.items():
        for mode in (torch.enable_grad, torch.no_grad):
            chosen.clear()
            with mode():
                got = transform(f, t)
            assert_near(got, want, f"{kind}, {mode.__name__}")
            assert not is_native(chosen), f"{kind}: {chosen}"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_batches(name: str) -> None:
    f, t = projected(FUNCTIONS[name], X.float()), drawn(4, DIRECTIONS).float()
    torch.testing.assert_close(vmap(f)(t), torch.stack([f(one) for one in t]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_second_derivatives(name: str, dtype: torch.dtype) -> None:
    """Squares, because the second derivative of a linear operator is zero."""
    f, t = projected(lambda x: FUNCTIONS[name](x).square(), X.to(dtype)), torch.zeros(DIRECTIONS, dtype=dtype)
    assert_near(hessian(lambda s: f(s)[0])(t), expected(name, squared=True), "hessian")


@needs_kernels
@pytest.mark.parametrize("name", FUNCTIONS)
def test_kernels_run_without_a_transform(name: str, chosen: List[str]) -> None:
    """Derivatives of several outputs at once pass through the kernels' backward passes."""
    f, t = projected(FUNCTIONS[name], X.float()), torch.zeros(DIRECTIONS)
    if name in WITHOUT_GRADIENTS:
        with torch.no_grad():
            f(t)
    else:
        assert_near(torch.autograd.functional.jacobian(f, t, vectorize=True), expected(name), "several at once")
    assert is_native(chosen), chosen


@needs_kernels
def test_several_outputs_at_once_name_the_remedy() -> None:
    f = projected(lambda x: OPERATORS["softmax"](x, path="native"), X.float())
    with pytest.raises(RuntimeError, match="FAIRSEQ_MEGA_PATHS=reference"):
        torch.autograd.functional.jacobian(f, torch.zeros(DIRECTIONS), vectorize=True)


@needs_kernels
@pytest.mark.parametrize("name", OPERATORS)
def test_forced_kernels_name_the_remedy(name: str) -> None:
    f = projected(lambda x: OPERATORS[name](x, path="native"), X.float())
    for kind, transform in JACOBIANS.items():
        with pytest.raises(RuntimeError, match="FAIRSEQ_MEGA_PATHS=reference|packed_linear .* no gradients"):
            transform(f, torch.zeros(DIRECTIONS))
            pytest.fail(f"{kind}: no error")


def test_dropout_drops_the_same_changes() -> None:
    x, change = X.float(), drawn(*X.shape, seed=5).float()
    y, by_jvp = jvp(lambda z: dropout(z, 0.5), (x,), (change,))[:2]
    torch.testing.assert_close(by_jvp, change * y / x)
    kept = grad(lambda z: (dropout(z, 0.5) * change).sum())(x) / change
    assert 0.4 < kept.ne(0).float().mean() < 0.6
    torch.testing.assert_close(kept[kept != 0], torch.full_like(kept[kept != 0], 2.0))


TWICE = ("linear", "parts", "silu_linear", "packed")  # whose gradients can be differentiated, or do not exist


@needs_kernels
@pytest.mark.parametrize("name", [name for name in OPERATORS if name not in TWICE])
def test_kernels_refuse_gradients_of_gradients(name: str) -> None:
    """The derivative of a kernel would be lost: torch would treat its gradients as constants."""
    x = X.float().requires_grad_()
    with pytest.raises(RuntimeError, match="no second derivatives.* FAIRSEQ_MEGA_PATHS=reference"):
        torch.autograd.grad(OPERATORS[name](x, path="native").square().sum(), x, create_graph=True)


@pytest.mark.parametrize("megalodon", [False, True])
def test_references_differentiate_layers_twice(megalodon: bool, monkeypatch: Any) -> None:
    monkeypatch.setenv("FAIRSEQ_MEGA_PATHS", "reference")
    torch.manual_seed(2)
    shape: Dict[str, Any] = {"embed_dim": 8, "hidden_dim": 16, "z_dim": 8, "chunk_size": 8}
    layer: Any = GatedAttention(MegaLayerConfig(**shape))
    if megalodon:
        layer = MegalodonLayer(MegalodonLayerConfig(**shape, ffn_dim=8, norm_groups=2))
    for parameter in layer.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    layer.double()

    def gradient(x: Tensor) -> Tensor:
        return torch.autograd.grad(layer(x).hidden.square().sum(), x, create_graph=True)[0]

    x, direction = drawn(2, 16, 8).requires_grad_(), drawn(2, 16, 8, seed=2)
    (product,) = torch.autograd.grad(gradient(x), x, direction)
    after, before = (gradient((x + step * direction).detach().requires_grad_()) for step in (1e-5, -1e-5))
    difference = (after - before) / 2e-5
    torch.testing.assert_close(product, difference, rtol=1e-5, atol=1e-5)
