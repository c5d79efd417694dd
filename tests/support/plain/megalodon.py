"""The published MEGALODON (XuezheMax/megalodon) written down plainly, on its own names of tensors; see forward.py.

It reads the tensors of the whole model and its configuration (``config["model"]``); there is no dropout.
"""

import math
from typing import Any, Dict, Optional

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.support.plain.forward import EPS, Weights, linear, under


def scaled(weights: Weights, x: Tensor) -> Tensor:
    """A norm's scale, which is kept minus one, and its shift."""
    x = x * (weights["weight"] + 1) if "weight" in weights else x
    return x + weights["bias"] if "bias" in weights else x


def root_mean_square(x: Tensor) -> Tensor:
    """Divide by the root of the mean square of the features."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS)


def timestep_norm(weights: Weights, x: Tensor, groups: int) -> Tensor:
    """Normalise x (B, L, d) by the statistics of all steps so far, group of features by group."""
    parts = x.unflatten(-1, (groups, -1))
    mean, variance = torch.zeros_like(parts[:, 0, :, 0]), torch.ones_like(parts[:, 0, :, 0])
    steps = []
    for count, step in enumerate(parts.unbind(1), start=1):
        share = 1 / count
        apart = step.mean(-1) - mean
        variance = (1 - share) * (variance + share * apart**2) + share * step.var(-1, unbiased=False)
        mean = mean + share * apart
        steps.append((step - mean.unsqueeze(-1)) * torch.rsqrt(variance + EPS).unsqueeze(-1))
    return scaled(weights, torch.stack(steps, 1).flatten(-2))


def complex_ema(weights: Weights, x: Tensor) -> Tensor:
    """The complex EMA of x (B, L, d), step by step, with its skip."""
    alpha, delta = torch.sigmoid(weights["alpha"][..., 0]), torch.sigmoid(weights["delta"][..., 0])  # (d, N)
    count = alpha.size(1)
    angle = 2 * math.pi / count * torch.arange(1, count + 1, dtype=x.dtype) * torch.sigmoid(weights["theta"][..., 0])
    decay = torch.polar(1 - alpha * delta, angle)
    projection = torch.view_as_complex(weights["gamma"]) / math.sqrt(count)
    state = torch.zeros(x.size(0), *alpha.shape, dtype=decay.dtype)
    steps = []
    for step in x.unbind(1):
        state = alpha * step.unsqueeze(-1) + decay * state
        steps.append((projection * state).sum(-1).real)
    return torch.stack(steps, 1) + weights["omega"][:, 0] * x


def rotate(x: Tensor, base: float) -> Tensor:
    """Turn pairs of features of x (B, C, H, z) by the place in the chunk."""
    width = x.size(-1)
    frequency = base ** (-torch.arange(0, width, 2, dtype=x.dtype) / width)
    angle = torch.arange(x.size(1), dtype=x.dtype)[:, None] * frequency
    turned = (
        torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
        * torch.polar(torch.ones_like(angle), angle)[:, None]
    )
    return torch.view_as_real(turned).flatten(-2)


def attention(weights: Weights, config: Dict[str, Any], x: Tensor) -> Tensor:
    """The normalised gated attention with its residual."""
    heads, base = config["num_heads"], config.get("rope_base") or 10000.0
    normed = timestep_norm(under(weights, "timenorm."), x, config["norm_num_groups"])
    average = scaled(under(weights, "rmsnorm."), root_mean_square(complex_ema(under(weights, "cema."), normed)))
    shared = root_mean_square(linear(weights, "wz", average).unflatten(-1, (heads, -1)))
    width = shared.size(-1)
    query, key = (
        (shared.flatten(-2) * (weights["gamma"][row] + 1) / math.sqrt(width) + weights["beta"][row]).view_as(shared)
        for row in (0, 1)
    )
    value = F.silu(linear(weights, "wv", normed)).unflatten(-1, (heads, -1))
    attended = []
    for start in range(0, x.size(1), config["chunk_size"]):
        part = slice(start, start + config["chunk_size"])
        q, k = rotate(query[:, part], base), rotate(key[:, part], base)
        logits = torch.einsum("bqhz,bkhz->bhqk", q, k)
        future = torch.ones(logits.shape[-2:], dtype=torch.bool).triu(1)
        shares = logits.masked_fill(future, -math.inf).softmax(-1)
        attended.append(torch.einsum("bhqk,bkhv->bqhv", shares, value[:, part]).flatten(-2))
    gated = torch.cat(attended, 1) * F.silu(linear(weights, "wr", average))
    return x + linear(weights, "wh1", average) + linear(weights, "wh2", gated)


def feed_forward(weights: Weights, x: Tensor, residual: Tensor) -> Tensor:
    """The feed-forward sub-layer of x, added to the layer's input."""
    normed = scaled(under(weights, "norm."), F.layer_norm(x, x.shape[-1:], eps=EPS))
    inner = F.silu(linear(weights, "fc1", normed))
    if "fc3.weight" in weights:
        inner = inner * linear(weights, "fc3", normed)
    out = linear(weights, "fc2", inner)
    scale: Optional[Tensor] = weights.get("alpha")
    return residual + (out if scale is None else scale * out)


def language_model(weights: Weights, config: Dict[str, Any], tokens: Tensor) -> Tensor:
    """Log probabilities (B, L, V) of the token after each of tokens (B, L)."""
    x = F.embedding(tokens, weights["embed.weight"])
    x = x * math.sqrt(x.size(-1)) if config.get("scale_emb") else x
    for index in range(config["num_layers"]):
        layer = under(weights, f"layers.{index}.")
        x = feed_forward(under(layer, "nffn."), attention(under(layer, "mega."), config, x), x)
    x = timestep_norm(under(weights, "output.final_norm."), x, config["norm_num_groups"])
    return linear(weights, "output.output", x).log_softmax(-1)
