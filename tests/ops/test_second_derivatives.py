"""Gradients of gradients: an error of the kernels, which could not be differentiated, and those of the references."""

from typing import Any, Callable, Dict

import pytest
import torch
from torch import Tensor

from fairseq_mega.modules.config import MegaLayerConfig
from fairseq_mega.modules.gated_attention import GatedAttention
from fairseq_mega.modules.megalodon.config import MegalodonLayerConfig
from fairseq_mega.modules.megalodon.layer import MegalodonLayer
from fairseq_mega.ops.activation import silu
from fairseq_mega.ops.attention import attention
from fairseq_mega.ops.common import native
from fairseq_mega.ops.cross_entropy import cross_entropy
from fairseq_mega.ops.ema import EMACoefficients, damped_ema
from fairseq_mega.ops.gate import gated_residual
from fairseq_mega.ops.norm import row_norm
from fairseq_mega.ops.query_key import query_key
from fairseq_mega.ops.rotary import normalized_query_key
from fairseq_mega.ops.timestep_norm import timestep_norm

X = torch.randn(2, 16, 8, generator=torch.Generator().manual_seed(1))
COLUMNS = torch.linspace(0.5, 1.5, 16).view(2, 8)


def ema(x: Tensor, path: str) -> Tensor:
    decay = torch.full((8, 4), -0.3)
    return damped_ema(x, EMACoefficients(decay, torch.ones(8, 4), torch.ones(8, 4)), path=path)[0]


def rotary(x: Tensor, path: str) -> Tensor:
    columns = COLUMNS.view(2, 1, 8)
    return normalized_query_key(x, columns, columns, first=0, chunk_size=-1, base=9.0, eps=1e-5, path=path)[0]


def statistics(x: Tensor, path: str) -> Tensor:
    return timestep_norm(x, COLUMNS[0] - 1, COLUMNS[1], 2, path=path)[0]


OPERATORS = {
    "silu": lambda x, path: silu(x, path=path),
    "query_key": lambda x, path: query_key(x, COLUMNS, COLUMNS, path=path)[0],
    "row_norm": lambda x, path: row_norm(x, COLUMNS[0], centred=True, eps=1e-5, path=path),
    "cross_entropy": lambda x, path: cross_entropy(x.flatten(0, -2), (0 * x[..., 0]).flatten().long(), path=path)[0],
    "gated_residual": lambda x, path: gated_residual(x, x, x, path=path),
    "attention": lambda x, path: attention(x, x, x, function="laplace", path=path),
    "ema_scan": ema,
    "rotary_query_key": rotary,
    "timestep_norm": statistics,
}


def penalty(function: Callable[[Tensor], Tensor]) -> Tensor:
    """The gradient of a squared gradient."""
    x = X.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(function(x).square().sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(gradient.square().sum(), x)
    return second


@pytest.mark.skipif(native.PROBLEM is not None, reason=f"no compiled kernels: {native.PROBLEM}")
@pytest.mark.parametrize("name", OPERATORS)
def test_kernels_refuse(name: str) -> None:
    with pytest.raises(RuntimeError, match="no second derivatives.* FAIRSEQ_MEGA_PATHS=reference"):
        penalty(lambda x: OPERATORS[name](x, "native"))


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

    x, direction = X.double().requires_grad_(), torch.randn(X.shape, dtype=torch.float64)
    (product,) = torch.autograd.grad(gradient(x), x, direction)
    after, before = (gradient((x + step * direction).detach().requires_grad_()) for step in (1e-5, -1e-5))
    difference = (after - before) / 2e-5
    torch.testing.assert_close(product, difference, rtol=1e-5, atol=1e-5)
