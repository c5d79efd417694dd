"""Attention of one block of queries after another: no L x L matrix is ever in memory."""

from functools import partial
from typing import Optional

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from .reference import Options
from .torch_dense import dense_attention


def blockwise_attention(q: Tensor, k: Tensor, v: Tensor, options: Options, *, block_size: int) -> Tensor:
    """Attention of ``block_size`` queries at a time; in training each block is recomputed in the backward pass.

    A causal block reads only the keys that its queries see. Arguments and result are as in
    :func:`fairseq_mega.ops.attention.attention`; the result does not depend on ``block_size``.
    """
    bias, padding_mask = options.bias, options.padding_mask
    queries, past = q.size(-2), k.size(-2) - q.size(-2)
    outputs = []
    random = options.dropout > 0.0 or options.drop_key > 0.0
    for start in range(0, queries, block_size):
        stop = min(start + block_size, queries)
        keys = past + stop if options.causal else k.size(-2)
        mask = None if padding_mask is None else padding_mask[..., :keys]
        run = partial(_attend, options=options._replace(bias=None, padding_mask=mask))
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


def _attend(q: Tensor, k: Tensor, v: Tensor, bias: Optional[Tensor], options: Options) -> Tensor:
    return dense_attention(q, k, v, options._replace(bias=bias))
