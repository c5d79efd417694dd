"""Documents within the rows of a batch; no information passes between them."""

from functools import cached_property
from typing import Callable, Dict, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_mega.ops.common.parts import Parts

Attend = Callable[..., Tensor]  # of query, key, value and padding mask


class Documents:
    """Beginnings of documents in (B, L) steps; all layers of a pass share one object.

    Memory belongs to a row's present document. Chunks and positions are counted from the beginning of the row, because
    processes that share a sequence divide it into chunks. Attention stays within a document, also inside a chunk.

    Args:
        begins: (B, L) bool, True at the first step of a document, which discards what came before.
    """

    def __init__(self, begins: Tensor) -> None:
        self.begins = begins
        self._parts: Dict[Tuple[int, int], Parts] = {}

    @cached_property
    def indices(self) -> Tensor:
        """Return the index of each step's document, (B L,) long, counted along the flattened batch."""
        return F.pad(self.begins[:, 1:], (1, 0), value=True).flatten().cumsum(0) - 1

    @cached_property
    def count(self) -> int:
        """Return the number of documents in the batch; on a GPU the call synchronizes."""
        return int(self.indices[-1]) + 1

    def totals(self, x: Tensor) -> Tensor:
        """Return the sums of x (B, L, ...) over each document, at each of its steps (B, L, ...); added in float64."""
        flat = x.flatten(0, 1)
        totals = flat.new_zeros(self.count, *flat.shape[1:], dtype=torch.float64)
        totals = totals.index_add(0, self.indices, flat.double())
        return totals.to(x.dtype).index_select(0, self.indices).view_as(x)

    def parts(self, past: int = 0, chunk_size: int = -1) -> Parts:
        """Return the documents as parts; with a chunk size, the pieces that lie within one document and one chunk.

        Args:
            past: number of steps before ``begins`` that are included; the first of them begins a chunk.
            chunk_size: -1 for no chunks.
        """
        key = (past, chunk_size)
        if key not in self._parts:
            begins = F.pad(self.begins, (past, 0))
            if chunk_size > 0:
                begins[:, ::chunk_size] = True
            self._parts[key] = Parts(begins)
        return self._parts[key]

    def attend(
        self,
        attend: Attend,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        padding_mask: Optional[Tensor],
        chunk_size: int,
    ) -> Tensor:
        """Causal attention within documents and chunks.

        Args:
            attend: attention within single chunks.
            query: (B, L, z).
            key, value: (B, past + L, z) and (B, past + L, v); their first step begins a chunk.
            padding_mask: (B, past + L) bool, True = padding, or None.
            chunk_size: -1 for no chunks.
        """
        past = key.size(1) - query.size(1)
        query = F.pad(query, (0, 0, past, 0))  # queries of the past, whose results are dropped
        parts = self.parts(past, chunk_size)
        masks = [None] * len(parts.groups) if padding_mask is None else parts.split(padding_mask)
        # no query sees the steps that a shorter row repeats: they are at its end
        rows = zip(*(parts.split(part) for part in (query, key, value)), masks)
        return parts.join(attend(*row) for row in rows)[:, past:]

    def ended(self, kept: int) -> Optional[Tensor]:
        """Return a mask (B, kept) bool of the last ``kept`` steps: True for ended documents; None if all are False."""
        steps = torch.arange(self.begins.size(1), 0, -1, device=self.begins.device)  # steps left, this one included
        present = torch.where(self.begins, steps, kept).amin(dim=1, keepdim=True).clamp(max=kept)
        ended = torch.arange(kept, 0, -1, device=steps.device) > present
        return ended if ended.any() else None


def documents_of(tokens: Tensor, token: Optional[int], fresh: bool) -> Optional[Documents]:
    """Return the documents of tokens (B, L), or None where no document begins within a row.

    Args:
        tokens: long.
        token: with which each document begins; None for rows of one document.
        fresh: whether the first token begins the stream.
    """
    if token is None:
        return None
    begins = tokens.eq(token)
    if fresh:
        begins[:, :1] = False
    return Documents(begins) if begins.any() else None
