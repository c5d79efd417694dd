"""The published MEGALODON (XuezheMax/megalodon) written down plainly, on its own names of tensors; see forward.py.

It reads the tensors of the whole model and its configuration (``config["model"]``); there is no dropout. Options of our
layers that the published ones lack stand here too, by our names in the configuration: both directions, SiLU in place of
the EMA's norm, the residual from the middle of the layer; and padding, (B, L) bool.
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


def timestep_norm(weights: Weights, x: Tensor, groups: int, padding: Optional[Tensor] = None) -> Tensor:
    """Normalise x (B, L, d) by the statistics of all true steps so far, group of features by group."""
    parts, seen = x.unflatten(-1, (groups, -1)), true_steps(x, padding)
    mean, variance = torch.zeros_like(parts[:, 0, :, 0]), torch.ones_like(parts[:, 0, :, 0])
    steps, count = [], torch.zeros_like(seen[:, 0])
    for step, true in zip(parts.unbind(1), seen.unbind(1)):
        count = count + true
        share = true / count.clamp(min=1)
        apart = step.mean(-1) - mean
        variance = (1 - share) * (variance + share * apart**2) + share * step.var(-1, unbiased=False)
        mean = mean + share * apart
        steps.append((step - mean.unsqueeze(-1)) * torch.rsqrt(variance + EPS).unsqueeze(-1))
    return scaled(weights, torch.stack(steps, 1).flatten(-2)) * seen


def group_norm(weights: Weights, x: Tensor, groups: int, padding: Optional[Tensor] = None) -> Tensor:
    """Normalise x (B, L, d) by the statistics of all its true steps, group of features by group."""
    parts, seen = x.unflatten(-1, (groups, -1)), true_steps(x, padding)
    count = seen.sum((1, 2), keepdim=True).unsqueeze(-1) * parts.size(-1)
    mean = (parts * seen.unsqueeze(-1)).sum((1, 3), keepdim=True) / count
    variance = ((parts - mean).square() * seen.unsqueeze(-1)).sum((1, 3), keepdim=True) / count
    return scaled(weights, ((parts - mean) * torch.rsqrt(variance + EPS)).flatten(-2)) * seen


def true_steps(x: Tensor, padding: Optional[Tensor]) -> Tensor:
    """Return 1 for the steps of x (B, L, d) that are no padding, otherwise 0; (B, L, 1)."""
    return torch.ones_like(x[..., :1]) if padding is None else (~padding).unsqueeze(-1).to(x)


def complex_ema(weights: Weights, x: Tensor, padding: Optional[Tensor] = None) -> Tensor:
    """The complex EMA of the true steps of x (B, L, d) with its skip; bidirectional where the weights are."""
    width, seen = x.size(-1), true_steps(x, padding)
    parts = [{name: weight[row : row + width] for name, weight in weights.items()} for row in (0, width)]
    out = recurrence(parts[0], x, seen) + weights["omega"][:, 0] * x
    if weights["alpha"].size(0) > width:
        out = out + recurrence(parts[1], x.flip(1), seen.flip(1), now=False).flip(1)
    return out


def recurrence(weights: Weights, x: Tensor, seen: Tensor, now: bool = True) -> Tensor:
    """The complex EMA of x (B, L, d) in one direction; without ``now`` a step sees those before it alone.

    The state waits at steps that are not true.
    """
    alpha, delta = torch.sigmoid(weights["alpha"][..., 0]), torch.sigmoid(weights["delta"][..., 0])  # (d, N)
    count = alpha.size(1)
    angle = 2 * math.pi / count * torch.arange(1, count + 1, dtype=x.dtype) * torch.sigmoid(weights["theta"][..., 0])
    decay = torch.polar(1 - alpha * delta, angle)
    projection = torch.view_as_complex(weights["gamma"]) / math.sqrt(count)
    state = torch.zeros(x.size(0), *alpha.shape, dtype=decay.dtype)
    steps = []
    for step, true in zip(x.unbind(1), seen.bool().unsqueeze(-1).unbind(1)):
        after = alpha * step.unsqueeze(-1) + decay * state
        steps.append((projection * (after if now else state)).sum(-1).real)
        state = torch.where(true, after, state)
    return torch.stack(steps, 1)


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


def attention(weights: Weights, config: Dict[str, Any], x: Tensor, padding: Optional[Tensor] = None) -> Tensor:
    """The normalised gated attention with its residual; a place that sees none gets nothing from the attention."""
    heads, base, both = config["num_heads"], config.get("rope_base") or 10000.0, config.get("bidirectional", False)
    normalise = group_norm if both else timestep_norm
    normed = normalise(under(weights, "timenorm."), x, config["norm_num_groups"], padding)
    average = complex_ema(under(weights, "cema."), normed, padding)
    if config.get("ema_norm") == "silu":
        average = F.silu(average)
    else:
        average = scaled(under(weights, "rmsnorm."), root_mean_square(average))
    shared = root_mean_square(linear(weights, "wz", average).unflatten(-1, (heads, -1)))
    width = shared.size(-1)
    query, key = (
        (shared.flatten(-2) * (weights["gamma"][row] + 1) / math.sqrt(width) + weights["beta"][row]).view_as(shared)
        for row in (0, 1)
    )
    value = F.silu(linear(weights, "wv", normed)).unflatten(-1, (heads, -1))
    attended = []
    chunk = config["chunk_size"] if config["chunk_size"] > 0 else x.size(1)
    for start in range(0, x.size(1), chunk):
        part = slice(start, start + chunk)
        q, k = rotate(query[:, part], base), rotate(key[:, part], base)
        logits = torch.einsum("bqhz,bkhz->bhqk", q, k)
        seen = true_steps(x, padding)[:, None, None, part, 0].bool()  # (B, 1, 1, keys)
        seen = seen & (torch.ones(logits.shape[-2:], dtype=torch.bool).tril() | both)
        shares = logits.masked_fill(~seen, torch.finfo(x.dtype).min).softmax(-1) * seen
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


def layer(weights: Weights, config: Dict[str, Any], x: Tensor, padding: Optional[Tensor] = None) -> Tensor:
    """The output of a layer for x (B, L, d)."""
    hidden = attention(under(weights, "mega."), config, x, padding)
    return feed_forward(under(weights, "nffn."), hidden, x if config.get("residual_hops", 2) == 2 else hidden)


def language_model(weights: Weights, config: Dict[str, Any], tokens: Tensor) -> Tensor:
    """Log probabilities (B, L, V) of the token after each of tokens (B, L)."""
    x = F.embedding(tokens, weights["embed.weight"])
    x = x * math.sqrt(x.size(-1)) if config.get("scale_emb") else x
    for index in range(config["num_layers"]):
        x = layer(under(weights, f"layers.{index}."), config, x)
    x = timestep_norm(under(weights, "output.final_norm."), x, config["norm_num_groups"])
    return linear(weights, "output.output", x).log_softmax(-1)
