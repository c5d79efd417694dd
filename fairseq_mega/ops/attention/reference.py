"""Attention weights as one matrix: the reference of the fast paths, and part of :mod:`.torch_dense`."""

import math
from typing import NamedTuple, Optional

import torch
from torch import Tensor

FUNCTIONS = ("softmax", "relu2", "laplace")

# The published code's rounded values of sqrt(1/2) and sqrt(1/(4 pi)), which its checkpoints were trained with.
LAPLACE_MU = 0.707107
LAPLACE_SIGMA = 0.282095


class Options(NamedTuple):
    """Options of one call, see :func:`fairseq_mega.ops.attention.attention`."""

    function: str = "softmax"
    bias: Optional[Tensor] = None  # (n + m - 1,), see :func:`toeplitz`
    causal: bool = False
    padding_mask: Optional[Tensor] = None  # (..., m) bool, True = padding
    dropout: float = 0.0
    drop_key: float = 0.0
    scale: Optional[float] = None  # factor of the product in place of 1 / tau


def laplace(x: Tensor, mu: float = LAPLACE_MU, sigma: float = LAPLACE_SIGMA) -> Tensor:
    """Laplace attention function ``0.5 (1 + erf((x - mu) / (sigma sqrt 2)))``. Source: MEGA, Eq. 16."""
    return torch.erf((x - mu) * (1.0 / (sigma * math.sqrt(2.0)))).add_(1.0).mul_(0.5)


def toeplitz(vector: Tensor, queries: int, keys: int) -> Tensor:
    """Matrix ``b[i, j] = vector[queries - 1 + j - i]`` of a relative bias given by its queries + keys - 1 values."""
    if queries * keys == 0:
        return vector.new_zeros(queries, keys)
    if torch.compiler.is_compiling():  # unfold would make a graph for each number of keys
        steps = torch.arange(max(queries, keys), device=vector.device)
        return vector[queries - 1 + steps[:keys] - steps[:queries].unsqueeze(1)]
    return vector.unfold(0, keys, 1)[:queries].flip(0)


def visible_keys(
    queries: int, keys: int, causal: bool, padding_mask: Optional[Tensor], device: torch.device
) -> Optional[Tensor]:
    """Return the keys that each query may attend to: bool (..., queries or 1, keys), or None for all.

    Queries are aligned with the last keys: query i sees keys 0 .. keys - queries + i. A query whose visible keys are
    all padding (a padded position, or a chunk of padding) sees these keys; its result is finite and unused.
    """
    future = None
    if causal and queries > 1:
        future = torch.ones(queries, keys, dtype=torch.bool, device=device).tril_(keys - queries)
    if padding_mask is None:
        return future
    visible = ~padding_mask.unsqueeze(-2)
    if future is not None:
        visible = visible & future
    nothing = ~visible.any(-1, keepdim=True)
    return visible | (nothing if future is None else nothing & future)


def attention_weights(q: Tensor, k: Tensor, options: Options) -> Tensor:
    """Weights ``f(Q K^T / tau + b)`` of single-head attention, masked, before dropout.

    Args:
        q: (..., n, z).
        k: (..., m, z).
        options: keys that are dropped do not change tau; a query that lost all its keys has zero weights.

    Returns:
        (..., n, m) in the dtype of q; softmax is computed in at least float32.

    Source: MEGA, Eq. 11 and 16; the visible-key count as tau is the published code's. DropKey: MEGALODON's code.
    """
    function, bias, causal, padding_mask, _, drop_key, scale = options
    queries, keys = q.size(-2), k.size(-2)
    visible = visible_keys(queries, keys, causal, padding_mask, q.device)
    if function == "softmax":
        logits = torch.matmul(q * (1.0 / math.sqrt(q.size(-1)) if scale is None else scale), k.transpose(-2, -1))
        if bias is not None:
            logits = logits + toeplitz(bias, queries, keys)
        left = None
        if visible is not None:
            logits = logits.masked_fill(~visible, -math.inf)
        if drop_key > 0.0:
            dropped = torch.rand_like(logits, dtype=torch.float32) < drop_key
            left = (logits.detach() > -math.inf).logical_and_(~dropped).any(-1, keepdim=True)
            logits = logits.masked_fill(dropped & left, -math.inf)
        dtype = torch.float64 if logits.dtype == torch.float64 else torch.float32
        weights = torch.softmax(logits, dim=-1, dtype=dtype).to(q.dtype)
        return weights if left is None else weights * left
    if scale is None:
        logits = torch.matmul(q, k.transpose(-2, -1))
        logits = logits.div_(keys if visible is None else visible.sum(-1, keepdim=True).to(q.dtype))
    else:
        logits = torch.matmul(q * scale, k.transpose(-2, -1))
    if bias is not None:
        logits = logits.add_(toeplitz(bias, queries, keys))
    weights = laplace(logits) if function == "laplace" else torch.relu(logits).square()
    if drop_key > 0.0:
        weights = weights.masked_fill(torch.rand_like(weights, dtype=torch.float32) < drop_key, 0.0)
    return weights if visible is None else weights.masked_fill(~visible, 0.0)
