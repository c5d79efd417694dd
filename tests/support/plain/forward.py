"""Layers of the published model (facebookresearch/mega) written down plainly, on its own names of tensors.

Converted models are compared with them: slow, for short inputs, and sharing nothing with this package's modules. They
read weights (name to tensor) and options as the published checkpoint holds them; there is no dropout.
"""

import math
from typing import Any, Dict, Optional

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_mega.modules.activation import ACTIVATIONS

Weights = Dict[str, Tensor]
EPS = 1e-5


def under(weights: Weights, prefix: str) -> Weights:
    """The weights below a prefix, without it."""
    return {name[len(prefix) :]: tensor for name, tensor in weights.items() if name.startswith(prefix)}


def linear(weights: Weights, name: str, x: Tensor) -> Tensor:
    """An affine map."""
    return F.linear(x, weights[f"{name}.weight"], weights.get(f"{name}.bias"))


def norm(weights: Weights, x: Tensor, kind: str = "layernorm") -> Tensor:
    """The norm whose parameters these are; that of ``kind`` where there are none."""
    if "running_mean" in weights:
        scale = torch.rsqrt(weights["running_var"] + EPS)
        return (x - weights["running_mean"]) * scale * weights["weight"] + weights["bias"]
    if "scalar" in weights or ("bias" not in weights and ("weight" in weights or kind != "layernorm")):
        scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS)
        return x * scale * weights.get("scalar", weights.get("weight", 1.0))
    return F.layer_norm(x, x.shape[-1:], weights.get("weight"), weights.get("bias"), EPS)


def ema(weights: Weights, x: Tensor, truncation: int, padding: Optional[Tensor], shift: bool = False) -> Tensor:
    """SiLU(EMA(x) + omega x) of x (B, L, d), one distance after the other; bidirectional where the weights are.

    With ``shift`` the part of the future begins with the next position instead of the present one.
    """
    length, width = x.size(1), x.size(2)
    p, a = torch.sigmoid(weights["delta"]), torch.sigmoid(weights["alpha"])  # the paper's alpha and delta
    steps = torch.arange(min(length, truncation) if truncation > 0 else length, dtype=x.dtype)
    powers = torch.exp(torch.log(1 - p * a) * steps) * (p * weights["beta"])  # (K, N, L)
    kernel = torch.einsum("knl,kn->lk", powers, weights["gamma"]) / math.sqrt(powers.size(1))
    visible = x if padding is None else x.masked_fill(padding.unsqueeze(-1), 0)
    out = weights["omega"] * x
    for distance, weight in enumerate(kernel):
        out[:, distance:] += weight[:width] * visible[:, : length - distance]
        if weight.numel() > width:
            ahead = min(distance + shift, length)
            out[:, : length - ahead] += weight[width:] * visible[:, ahead:]
    return F.silu(out)


def relative_bias(weights: Weights, queries: int, keys: int) -> Tensor:
    """Bias (queries, keys), simple or rotary as the weights are."""
    query, key = torch.arange(queries)[:, None], torch.arange(keys)[None, :]
    if "rel_pos_bias" in weights:
        table = weights["rel_pos_bias"]
        return table[(table.numel() + 1) // 2 - 1 + key - query]
    alpha, beta = weights["alpha"][0], weights["beta"][0]
    half = alpha.numel() // 2
    frequency = torch.exp(torch.arange(half, dtype=alpha.dtype) * (-math.log(10000) / half))
    a, c = torch.complex(alpha[:half], alpha[half:]), torch.complex(beta[:half], beta[half:])
    turn = torch.polar(torch.ones(()).to(alpha), (query - key).unsqueeze(-1) * frequency)
    return (a * c.conj() * turn).real.sum(-1)


def weigh(q: Tensor, k: Tensor, bias: Tensor, function: str, causal: bool, padding: Optional[Tensor]) -> Tensor:
    """Attention weights (B, queries, keys)."""
    allowed = torch.ones(q.size(1), k.size(1), dtype=torch.bool)
    allowed = allowed.tril() if causal else allowed
    kept = allowed if padding is None else allowed & ~padding.unsqueeze(1)
    if function == "softmax":
        logits = q @ k.transpose(1, 2) / math.sqrt(q.size(-1)) + bias
        return logits.masked_fill(~kept, -math.inf).softmax(-1).nan_to_num(0.0)
    if causal or padding is None:
        count = allowed.sum(-1, keepdim=True).to(q)
    else:
        count = (~padding).sum(-1).clamp(min=1).to(q)[:, None, None]
    logits = q @ k.transpose(1, 2) / count + bias
    if function == "relu2":
        return F.relu(logits).square() * kept
    return 0.5 * (1 + torch.erf((logits - 0.707107) / (0.282095 * math.sqrt(2)))) * kept


def gated_attention(weights: Weights, options: Dict[str, Any], x: Tensor, padding: Optional[Tensor]) -> Tensor:
    """The sub-layer with the EMA, chunk by chunk."""
    activation = ACTIVATIONS[options["activation"]]
    d, z, v = x.size(-1), weights["gamma"].size(1), weights["v_proj.weight"].size(0)
    before = norm(under(weights, "norm.norm."), x) if options["prenorm"] else x
    value = activation(linear(weights, "v_proj", before))
    average = ema(under(weights, "move."), before, options["truncation"], padding, options.get("shift", False))
    update, shared, candidate = linear(weights, "mx_proj", average).split([d, z + v, d], -1)
    shared, reset = F.silu(shared).split([z, v], -1)
    query, key = (shared * weights["gamma"][row] + weights["beta"][row] for row in (0, 1))
    chunk = options["chunk"] if options["chunk"] > 0 else x.size(1)
    attended = []
    for start in range(0, x.size(1), chunk):
        part = slice(start, start + chunk)
        mask = None if padding is None else padding[:, part]
        q, k = query[:, part], key[:, part]
        bias = relative_bias(under(weights, "rel_pos_bias."), q.size(1), k.size(1))
        attended.append(weigh(q, k, bias, options["function"], options["causal"], mask) @ value[:, part])
    changed = activation(candidate + linear(weights, "h_proj", torch.cat(attended, 1) * reset))
    out = x + torch.sigmoid(update) * (changed - x)
    return out if options["prenorm"] else norm(under(weights, "norm.norm."), out)


def cross_attention(
    weights: Weights, options: Dict[str, Any], x: Tensor, encoded: Tensor, padding: Optional[Tensor]
) -> Tensor:
    """The sub-layer that reads the encoder's output (B, S, d)."""
    activation = ACTIVATIONS[options["activation"]]
    d, z = x.size(-1), weights["k_proj.weight"].size(0)
    before = norm(under(weights, "norm.norm."), x) if options["prenorm"] else x
    update, reset, query = linear(weights, "q_proj", before).split([d, d, z], -1)
    key, value = linear(weights, "k_proj", encoded), activation(linear(weights, "v_proj", encoded))
    bias = relative_bias(under(weights, "rel_pos_bias."), query.size(1), key.size(1))
    attended = weigh(query, key, bias, options["function"], False, padding) @ value
    out = x + torch.sigmoid(update) * (activation(linear(weights, "h_proj", attended * F.silu(reset))) - x)
    return out if options["prenorm"] else norm(under(weights, "norm.norm."), out)


def feed_forward(weights: Weights, options: Dict[str, Any], x: Tensor) -> Tensor:
    """The last sub-layer."""
    before = norm(under(weights, "norm.norm."), x) if options["prenorm"] else x
    out = x + linear(weights, "fc2", ACTIVATIONS[options["activation"]](linear(weights, "fc1", before)))
    return out if options["prenorm"] else norm(under(weights, "norm.norm."), out)
