"""MEGALODON's layer for the benchmark of layers, also in the arrangement of the published code."""

import argparse
import math
from typing import Any

import torch

from fairseq_mega.lab.benchmarks.kernels.published_ema import dxnxl_ema
from fairseq_mega.lab.benchmarks.kernels.shapes import Shape
from fairseq_mega.modules.megalodon.config import MegalodonLayerConfig
from fairseq_mega.modules.megalodon.layer import MegalodonLayer


def megalodon_layer(model: str, arguments: argparse.Namespace) -> MegalodonLayer:
    """Build a causal layer with one head and a plain FFN; the EMA is in the published arrangement if ``model`` is."""
    config = MegalodonLayerConfig(
        embed_dim=arguments.embed_dim,
        hidden_dim=arguments.hidden_dim,
        z_dim=arguments.z_dim,
        ffn_dim=arguments.hidden_dim,
        ema_dim=arguments.n_dim,
        norm_groups=math.gcd(arguments.embed_dim, 32),
        chunk_size=arguments.chunk_size,
    )
    layer = MegalodonLayer(config)
    if "published" in model:
        layer.attention.ema = PublishedComplexEMA(layer.attention.ema)  # type: ignore[assignment]
    return layer


class PublishedComplexEMA(torch.nn.Module):
    """The complex EMA of this package, computed from D x N x L powers and an FFT."""

    def __init__(self, ours: Any) -> None:
        super().__init__()
        self.alpha, self.delta, self.theta = ours.alpha, ours.delta, ours.theta
        self.gamma, self.omega = ours.gamma, ours.omega

    def forward(self, x: Any, **_: Any) -> Any:
        inputs = {"x": x, "alpha": self.alpha, "delta": self.delta, "theta": self.theta, "gamma": self.gamma}
        shape = Shape(x.size(0), x.size(2), self.alpha.size(1), x.size(1))
        return dxnxl_ema(inputs, shape, complex_=True) + x * self.omega, None
