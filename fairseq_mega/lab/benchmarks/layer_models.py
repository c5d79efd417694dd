"""The compared layers, and the check of their measured paths against the references."""

import argparse
import contextlib
import os
from typing import Any, ContextManager, Iterator, List

import torch
import torch.nn.functional as F

from fairseq_mega.lab.benchmarks.kernels.published_ema import dxnxl_ema
from fairseq_mega.lab.benchmarks.kernels.shapes import Shape
from fairseq_mega.lab.benchmarks.megalodon_layer import megalodon_layer
from fairseq_mega.modules.config import MegaLayerConfig
from fairseq_mega.modules.mega_layer import MegaLayer
from fairseq_mega.ops.common.dispatch import VARIABLE

MODELS = {
    "transformer": "torch.nn.TransformerEncoderLayer, fused attention",
    "mega": "MEGA layer, full attention",
    "mega-chunk": "MEGA layer, attention in chunks",
    "published-chunk": "the same in the published arrangement: D x N x L powers and an FFT, attention written out",
    "megalodon-chunk": "MEGALODON layer, causal, attention in chunks",
    "megalodon-published": "the same in the published arrangement: D x N x L powers and an FFT, attention written out",
    "explicit-transformer": "Transformer layer, attention written out (the paper's comparison)",
}
WRITTEN_OUT = ("activation", "attention", "dropout", "gate", "norm", "query_key")  # in the published code
PUBLISHED = ",".join(f"{operator}=reference" for operator in WRITTEN_OUT)
REFERENCE = f"ema=reference,{PUBLISHED}"


@contextlib.contextmanager
def forced(paths: str) -> Iterator[None]:
    """Force the paths of operators, a value of FAIRSEQ_MEGA_PATHS."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = paths
    try:
        yield
    finally:
        del os.environ[VARIABLE]
        if before is not None:
            os.environ[VARIABLE] = before


def paths_of(model: str) -> ContextManager[None]:
    """Force the paths of the published code for a model in its arrangement."""
    return forced(PUBLISHED) if "published" in model else contextlib.nullcontext()


def build(model: str, length: int, arguments: argparse.Namespace) -> Any:
    """Build the measured layer, in training mode without dropout."""
    d = arguments.embed_dim
    if model in ("transformer", "explicit-transformer"):
        layer = torch.nn.TransformerEncoderLayer(
            d, arguments.heads, 4 * d, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        if model == "explicit-transformer":
            layer.self_attn = explicit_attention(layer.self_attn)
        return layer
    if model.startswith("megalodon"):
        return megalodon_layer(model, arguments)
    config = MegaLayerConfig(
        embed_dim=d,
        hidden_dim=arguments.hidden_dim,
        z_dim=arguments.z_dim,
        ema_dim=arguments.n_dim,
        ffn_dim=arguments.hidden_dim,
        chunk_size=-1 if model == "mega" else arguments.chunk_size,
        max_positions=length,
        bidirectional=not arguments.causal,
        attention_function=arguments.attention,
        normalize_before=True,
    )
    mega = MegaLayer(config)
    if model == "published-chunk":
        mega.attention.ema = published_ema(mega.attention.ema)
    return mega


def published_ema(ours: Any) -> Any:
    """Compute an EMA sub-layer of this package in the arrangement of the published code."""

    class PublishedEMA(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.alpha, self.delta, self.beta = ours.alpha, ours.delta, ours.beta
            self.eta, self.omega = ours.eta, ours.omega

        def forward(self, x: Any, **_: Any) -> Any:
            inputs = {"x": x, "alpha": self.alpha, "delta": self.delta, "beta": self.beta, "eta": self.eta}
            shape = Shape(x.size(0), x.size(2), ours.ema_dim, x.size(1))
            y = dxnxl_ema(inputs, shape, bidirectional=ours.bidirectional)
            return F.silu(y + x * self.omega), None

    return PublishedEMA()


def explicit_attention(fused: Any) -> Any:
    """Compute torch's multi-head attention with explicit weights, one matrix per head."""

    class ExplicitAttention(torch.nn.Module):
        batch_first = True

        def __init__(self) -> None:
            super().__init__()
            self.fused = fused

        def forward(self, x: Any, *_: Any, **__: Any) -> Any:
            heads = fused.num_heads
            projected = torch.nn.functional.linear(x, fused.in_proj_weight, fused.in_proj_bias)
            q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in projected.chunk(3, dim=-1))
            weights = torch.softmax(q @ k.transpose(-2, -1) * q.size(-1) ** -0.5, dim=-1)
            return fused.out_proj((weights @ v).transpose(1, 2).flatten(2)), None

    return ExplicitAttention()


def products(model: str, length: int, arguments: argparse.Namespace) -> float:
    """Return the operations of the matrix products of a layer of ours in a pass; 0 for other layers."""
    from fairseq_mega.models.cost import training_products  # imports fairseq, which a measured process does not need

    if not model.startswith("mega") or "published" in model:
        return 0.0
    return arguments.tokens // length * length * training_products(build(model, length, arguments), length)


def output(layer: Any, x: Any) -> Any:
    """Return the hidden states among the results of a layer."""
    result = layer(x)
    return getattr(result, "hidden", result)


def check(model: str, arguments: argparse.Namespace) -> None:
    """Compare the measured paths with the references; raise AssertionError if they differ."""
    torch.manual_seed(0)
    length = 3 * arguments.chunk_size + 5
    layer = build(model, length, arguments).to(arguments.device)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    results: List[List[Any]] = []
    reference = build(model.replace("published", "mega").replace("explicit-", ""), length, arguments)
    reference = reference.to(arguments.device)
    with torch.no_grad():
        for target, source in zip(reference.parameters(), layer.parameters()):
            target.copy_(source)
    for tested, paths in ((layer, paths_of(model)), (reference, forced(REFERENCE))):
        x = torch.randn(2, length, arguments.embed_dim, generator=torch.Generator().manual_seed(1))
        x = x.to(arguments.device).requires_grad_()
        with paths:
            y = output(tested, x)
            gradients = torch.autograd.grad(y.square().mean(), [x, *tested.parameters()])
        results.append([y, *gradients])
    names = ["output", "gradient of x", *(f"gradient of {name}" for name, _ in reference.named_parameters())]
    for name, got, want in zip(names, *results):
        error = (got - want).norm() / want.norm().clamp(min=1e-6)
        assert error < 1e-4, f"{model}: {name} differs from the reference by {error:.2g}; nothing is measured"
