"""Attention block of queries by block of queries, so that no L x L matrix is ever in memory."""

from functools import partial
from typing import Any, Optional

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from .torch_dense import dense_attention


def blockwise_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    function: str,
    bias: Optional[Tensor],
    causal: bool,
    padding_mask: Optional[Tensor],
    dropout: float,
    block_size: int,
    drop_key: float = 0.0,
    scale: Optional[float] = None,
) -> Tensor:
    """Attention of ``block_size`` queries at a time; in training each block is recomputed in the backward pass.

    A causal block only touches the keys it can see. Arguments and result as
    :func:`fairseq_mega.ops.attention.attention`; the result does not depend on ``block_size``.
    """
    queries, past = q.size(-2), k.size(-2) - q.size(-2)
    outputs = []
    random = dropout > 0.0 or drop_key > 0.0
    for start in range(0, queries, block_size):
        stop = min(start + block_size, queries)
        keys = past + stop if causal else k.size(-2)
        run = partial(
            _attend,
            function=function,
            causal=causal,
            padding_mask=None if padding_mask is None else padding_mask[..., :keys],
            dropout=dropout,
            drop_key=drop_key,
            scale=scale,
        )
        block = (
            q[..., start:stop, :],
            k[..., :keys, :],
            v[..., :keys, :],
            None if bias is None else bias[queries - stop : queries - start + keys - 1],
        )
        if torch.is_grad_enabled():
            outputs.append(checkpoint(run, *block, use_reentrant=False, preserve_rng_state=random))
        else:
            outputs.append(run(*block))
    return torch.cat(outputs, dim=-2)


def _attend(q: Tensor, k: Tensor, v: Tensor, bias: Optional[Tensor], **options: Any) -> Tensor:
    return dense_attention(q, k, v, bias=bias, **options)
