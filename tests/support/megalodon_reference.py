"""A layer of MEGALODON written out, step after step and head after head: the measure of the module."""

import math
from typing import Any, List, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

EPS = 1e-5


def timestep_norm(
    x: Tensor, weight: Tensor, bias: Tensor, groups: int, mask: Optional[Tensor] = None, before: Any = None
) -> Tuple[Tensor, Tuple[Any, Any, Any]]:
    """One sequence (L, D) normalised, and its count, means and variances (G,); ``before``: those before it."""
    count, mean, variance = before or (0, torch.zeros(groups).to(x), torch.ones(groups).to(x))
    outputs = []
    for t, step in enumerate(x):
        if mask is not None and mask[t]:
            outputs.append(torch.zeros_like(step))
            continue
        parts = step.view(groups, -1)
        count += 1
        moved = parts.mean(1) - mean
        variance = variance + (parts.var(1, unbiased=False) - variance) / count + moved**2 * (count - 1) / count**2
        mean = mean + moved / count
        y = (parts - mean[:, None]) / (variance[:, None] + EPS).sqrt()
        outputs.append(y.flatten() * (weight + 1) + bias)
    return torch.stack(outputs), (count, mean, variance)


def group_norm(x: Tensor, weight: Tensor, bias: Tensor, groups: int, mask: Optional[Tensor] = None) -> Tensor:
    """One sequence (L, D) normalised by the statistics of all its true steps."""
    true = x if mask is None else x[~mask]
    parts = []
    for group, own in zip(x.chunk(groups, dim=1), true.chunk(groups, dim=1)):
        parts.append((group - own.mean()) / (own.var(unbiased=False) + EPS).sqrt())
    y = torch.cat(parts, dim=1) * (weight + 1) + bias
    return y if mask is None else y * (~mask)[:, None]


def recurrence(x: Tensor, ema: Any, rows: slice, state: Tensor, now: bool = True) -> Tuple[Tensor, Tensor]:
    """The complex EMA of one sequence (L, D) and its last state; without ``now`` a step sees the ones before alone."""
    alpha, delta = torch.sigmoid(ema.alpha[rows]), torch.sigmoid(ema.delta[rows])
    n = alpha.size(1)
    phi = 2 * math.pi / n * torch.arange(1.0, n + 1, dtype=torch.float64) * torch.sigmoid(ema.theta[rows])
    q = (1 - alpha * delta) * torch.complex(torch.cos(phi), torch.sin(phi))
    g = torch.complex(ema.gamma[rows, :, 0], ema.gamma[rows, :, 1]) / math.sqrt(n)
    outputs = []
    for step in x:
        new = alpha * step[:, None] + q * state
        outputs.append((g * (new if now else state)).sum(1).real)
        state = new
    return torch.stack(outputs), state


def complex_ema(x: Tensor, ema: Any, mask: Optional[Tensor], state: Optional[Tensor]) -> Tuple[Tensor, Tensor]:
    """``CEMA(x) + omega x`` of one sequence (L, D), and the last state (D, N) of the way from the past."""
    seen = x if mask is None else x * (~mask)[:, None]
    width, n = x.size(1), ema.alpha.size(1)
    zeros = torch.zeros(width, n, dtype=torch.complex128)
    y, last = recurrence(seen, ema, slice(0, width), zeros if state is None else state)
    if ema.alpha.size(0) > width:
        y = y + recurrence(seen.flip(0), ema, slice(width, None), zeros, now=False)[0].flip(0)
    return y + ema.omega * x, last


def rms(x: Tensor) -> Tensor:
    return x / ((x**2).mean(-1, keepdim=True) + EPS).sqrt()


def turned(x: Tensor, position: int, base: float) -> Tensor:
    """Pairs of (E,) turned by their angles."""
    out = []
    for i in range(x.numel() // 2):
        angle = position * base ** (-2 * i / x.numel())
        a, b = x[2 * i], x[2 * i + 1]
        out += [a * math.cos(angle) - b * math.sin(angle), a * math.sin(angle) + b * math.cos(angle)]
    return torch.stack(out)


def attend(query: Tensor, key: Tensor, value: Tensor, config: Any, mask: Optional[Tensor]) -> Tensor:
    """One head of one sequence: (L, E), (L, E), (L, v / H); a row that sees no key gives zeros."""
    size = config.chunk_size if config.chunk_size > 0 else len(query)
    query, key = (torch.stack([turned(x, t % size, config.rope_base) for t, x in enumerate(xs)]) for xs in (query, key))
    outputs = []
    for t in range(len(query)):
        start = t - t % size
        stop = min(start + size, len(query)) if config.bidirectional else t + 1
        keys = [j for j in range(start, stop) if mask is None or not mask[j]]
        weights = torch.softmax(key[keys] @ query[t], dim=0)
        outputs.append(weights @ value[keys] if keys else torch.zeros_like(value[0]))
    return torch.stack(outputs)


def attention_sublayer(x: Tensor, part: Any, config: Any, mask: Optional[Tensor]) -> Tensor:
    """The attention sub-layer of one sequence (L, D)."""
    heads, z = config.heads, config.z_dim
    affine = (part.norm.weight, part.norm.bias, config.norm_groups, mask)
    normed = group_norm(x, *affine) if config.bidirectional else timestep_norm(x, *affine)[0]
    average, _ = complex_ema(normed, part.ema, mask, None)
    m = rms(average) * (part.ema_norm.weight + 1) if config.ema_norm == "rmsnorm" else F.silu(average)
    wz, wr, wh = part.gate_proj.weight.split(part.widths)
    bz, br, bh = part.gate_proj.bias.split(part.widths)
    shared = rms((m @ wz.T + bz).view(len(x), heads, -1)) / math.sqrt(z / heads)
    (query, key) = (shared.flatten(1) * (part.kappa[i] + 1) + part.mu[i] for i in (0, 1))
    value = F.silu(part.value_proj(normed))
    gate = F.silu(m @ wr.T + br)
    by_head: List[Tensor] = []
    for k in range(heads):
        e, w = slice(k * z // heads, (k + 1) * z // heads), config.hidden_dim // heads
        by_head.append(attend(query[:, e], key[:, e], value[:, k * w : (k + 1) * w], config, mask))
    return x + m @ wh.T + bh + (torch.cat(by_head, dim=1) * gate) @ part.output_proj.weight.T


def feed_forward(x: Tensor, residual: Tensor, part: Any, config: Any) -> Tensor:
    """The feed-forward sub-layer of one sequence (L, D)."""
    normed = (x - x.mean(-1, keepdim=True)) / (x.var(-1, unbiased=False, keepdim=True) + EPS).sqrt()
    normed = normed * (part.norm.weight + 1) + part.norm.bias
    if config.swiglu:
        w1, w3 = part.input_proj.weight.chunk(2)
        inner = F.silu(normed @ w1.T) * (normed @ w3.T)
    else:
        inner = F.silu(normed @ part.input_proj.weight.T)
    out = inner @ part.output_proj.weight.T
    return residual + (out if part.scale is None else part.scale * out)


def layer(x: Tensor, module: Any, config: Any, mask: Optional[Tensor] = None) -> Tensor:
    """The output (B, L, D) of a MegalodonLayer in float64, from its parameters alone."""
    outputs = []
    for row in range(len(x)):
        own = None if mask is None else mask[row]
        hidden = attention_sublayer(x[row], module.attention, config, own)
        residual = x[row] if config.residual_hops == 2 else hidden
        outputs.append(feed_forward(hidden, residual, module.feed_forward, config))
    return torch.stack(outputs)
