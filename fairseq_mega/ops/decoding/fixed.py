"""Single steps whose position is a tensor, over keys and values in memory of fixed size, for CUDA graphs."""

import math
from typing import NamedTuple, Union

import torch
from torch import Tensor

from fairseq_mega.ops.attention import laplace


class Place(NamedTuple):
    """Position of a step in its chunk of C steps, in the forms that the layers read; the same for all rows."""

    position: Tensor  # (1,) long
    entries: Tensor  # (C,) long, of the chunk's steps in a table of 2 C - 1 distances, the farthest past first
    hidden: Tensor  # (C,) float32: -inf for later steps, else 0; a logit to add
    share: Tensor  # () float64, one over the number of visible steps


def place_of(position: Tensor, chunk_size: int) -> Place:
    """Return the place of a position (1,) long in a chunk, without reading its value on the host."""
    steps = torch.arange(chunk_size, device=position.device)
    entries = steps - position + (chunk_size - 1)
    hidden = torch.zeros(chunk_size, device=position.device).masked_fill_(steps > position, -math.inf)
    return Place(position, entries, hidden, (position + 1).double().reciprocal().squeeze(0))


def attention_at_place(
    query: Tensor, keys: Tensor, values: Tensor, bias: Tensor, function: str, scale: Union[float, Tensor]
) -> Tensor:
    """Attend from one query to the visible keys of a chunk.

    Args:
        query: (G, 1, z).
        keys, values: (G, C, z) and (G, C, v), finite.
        bias: (C,), added to the logits; -inf hides a key from all attention functions.
        function: the attention function.
        scale: factor of the product; a number for softmax, ``share`` of the place for the others.

    Returns:
        (G, 1, v).

    Source: MEGA (Ma et al., ICLR 2023), Eq. 11 and 16.
    """
    bias, turned = bias.to(query.dtype), keys.transpose(1, 2)
    if function == "softmax":
        assert not isinstance(scale, Tensor)
        logits = torch.baddbmm(bias, query, turned, alpha=scale)
        dtype = torch.promote_types(query.dtype, torch.float32)
        return torch.bmm(torch.softmax(logits, dim=-1, dtype=dtype).to(values.dtype), values)
    logits = torch.baddbmm(bias, query * scale, turned)
    return torch.bmm(laplace(logits) if function == "laplace" else torch.relu(logits).square(), values)
