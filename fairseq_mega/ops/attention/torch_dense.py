"""Attention of all queries at once: torch's fused kernel for softmax, explicit weights for relu2 and laplace."""

import math
from typing import Optional

import torch
import torch.nn.functional as F
from torch import Tensor

from .reference import Options, attention_weights, toeplitz, visible_keys


def dense_attention(q: Tensor, k: Tensor, v: Tensor, options: Options) -> Tensor:
    """Attention of all queries at once; arguments and result as :func:`fairseq_mega.ops.attention.attention`."""
    function, bias, causal, padding_mask, dropout, drop_key, scale = options
    if function == "softmax" and drop_key == 0.0:
        if q.size(-2) == 1 and q.dim() == 3 and padding_mask is None and dropout == 0.0:
            return _one_query(q, k, v, bias, scale)
        if causal and bias is None and padding_mask is None and q.size(-2) == k.size(-2):  # torch needs no mask
            return F.scaled_dot_product_attention(q, k, v, None, dropout, is_causal=True, scale=scale)
        mask = _additive_mask(q, k, bias, causal, padding_mask)
        return F.scaled_dot_product_attention(q, k, v, mask, dropout, scale=scale)
    weights = attention_weights(q, k, options)
    if dropout > 0.0:
        weights = F.dropout(weights, dropout)
    return torch.matmul(weights, v)


def _one_query(q: Tensor, k: Tensor, v: Tensor, bias: Optional[Tensor], scale: Optional[float]) -> Tensor:
    """Softmax attention of a single query (B, 1, z), as in decoding, which sees all keys (B, m, z)."""
    scale, kt = 1.0 / math.sqrt(q.size(-1)) if scale is None else scale, k.transpose(1, 2)
    if bias is None:
        logits = torch.bmm(q if scale == 1.0 else q * scale, kt)
    else:
        logits = torch.baddbmm(bias.to(q.dtype), q, kt, alpha=scale)
    dtype = torch.promote_types(q.dtype, torch.float32)
    return torch.bmm(torch.softmax(logits, dim=-1, dtype=dtype).to(v.dtype), v)


def _additive_mask(
    q: Tensor, k: Tensor, bias: Optional[Tensor], causal: bool, padding_mask: Optional[Tensor]
) -> Optional[Tensor]:
    """Return the relative bias and the masks as one tensor to add to the logits, or a bool mask, or None."""
    queries, keys = q.size(-2), k.size(-2)
    visible = visible_keys(queries, keys, causal, padding_mask, q.device)
    if bias is None:
        return visible
    mask = toeplitz(bias, queries, keys).to(q.dtype)
    return mask if visible is None else mask.masked_fill(~visible, -math.inf)
