"""Texts of a padded batch one after another in one row, so that bidirectional layers compute no padding."""

from functools import cached_property
from typing import Optional

import torch
from torch import Tensor, nn

from fairseq_mega.ops.common.parts import Parts
from fairseq_mega.ops.common.recompute import recomputing

from .documents import Attend, Documents
from .dropout import Dropout, StochasticDepth
from .norm import BatchStatistics

WORTH = 0.9  # a batch is packed if that leaves fewer of its steps than this share; packing costs a few copies
# Texts of one call of attention: the longest has at most RATIO times the steps of the shortest, unless the call would
# then have fewer texts than a CPU has threads, or than fill a GPU.
RATIO = 1.15
FEW_FOR_A_GPU = 8


class PackedTexts(Documents):
    """Texts in one row; attention begins at the first step of each text.

    Args:
        begins: (1, W) bool, True at the first step of a text.
        aligned: each text begins at a multiple of the chunk, so that chunks hold one text each.
    """

    def __init__(self, begins: Tensor, aligned: bool) -> None:
        super().__init__(begins)
        self.aligned = aligned

    @cached_property
    def alike(self) -> Parts:
        """Return the texts in groups of nearly equal lengths."""
        least = torch.get_num_threads() if self.begins.device.type == "cpu" else FEW_FOR_A_GPU
        return Parts(self.begins, RATIO, least)

    def attend(
        self,
        attend: Attend,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        padding_mask: Optional[Tensor],
        chunk_size: int,
    ) -> Tensor:
        """Attend within texts and chunks, in both directions; arguments as in :meth:`Documents.attend`."""
        if self.aligned:
            return recomputing(attend, query, key, value, padding_mask)
        absent = self.alike.absent(padding_mask)
        rows = zip(*(self.alike.split(part) for part in (query, key, value)), absent)
        return self.alike.join(attend(*row) for row in rows)


class Packing:
    """Layout of the texts of a padded batch (B, L) in one row of W steps, without the padding behind each text.

    Args:
        padding_mask: (B, L) bool, True = padding.
        lengths: (B,) long, the steps of each text up to its last real one; one of them at least 1.
        slots: (B,) long, the steps of the row for each text, at least its length; the rest is padding.
        aligned: whether each slot consists of whole chunks of the attention.

    Attributes:
        texts: separates the texts of the row.
        padding_mask: (1, W) bool, or None where no step of the row is padding.
        positions: (1, W) long, the position of each step in its text.
    """

    def __init__(self, padding_mask: Tensor, lengths: Tensor, slots: Tensor, aligned: bool) -> None:
        steps = torch.arange(padding_mask.size(1), device=padding_mask.device)
        present = steps < lengths.unsqueeze(1)  # (B, L)
        first = slots.cumsum(0) - slots  # (B,) step of the row with which each text begins
        self._shape = padding_mask.shape
        self._from = present.flatten().nonzero().squeeze(1)  # (T,) places in the flattened batch
        self._to = (first.unsqueeze(1) + steps)[present] if aligned else None  # (T,) in the row; None: 0, 1, ...
        self._width = int(slots.sum())
        begins = torch.zeros(1, self._width, dtype=torch.bool, device=padding_mask.device)
        begins[0, first[slots > 0]] = True
        self.texts = PackedTexts(begins, aligned)
        mask = self.lay(padding_mask, fill=True)
        self.padding_mask = mask if bool(mask.any()) else None
        row = torch.arange(self._width, device=padding_mask.device)
        self.positions = (row - row[begins[0]][self.texts.indices]).unsqueeze(0)

    def lay(self, x: Tensor, fill: float) -> Tensor:
        """Return the row (1, W, ...) of x (B, L, ...), with ``fill`` at padding that the batch does not have."""
        gathered = x.flatten(0, 1).index_select(0, self._from)
        if self._to is not None:
            gathered = gathered.new_full((self._width, *gathered.shape[1:]), fill).index_copy(0, self._to, gathered)
        return gathered.unsqueeze(0)

    def spread(self, x: Tensor) -> Tensor:
        """Return the padded batch (B, L, ...) of a row (1, W, ...), with zeros after the texts."""
        gathered = x[0] if self._to is None else x[0].index_select(0, self._to)
        padded = gathered.new_zeros(self._shape.numel(), *gathered.shape[1:]).index_copy(0, self._from, gathered)
        return padded.unflatten(0, self._shape)


def packing_of(padding_mask: Optional[Tensor], chunk_size: int) -> Optional[Packing]:
    """Return the packing of a batch with this mask (B, L), True = padding; None if packing would remove little padding.

    In batches longer than a chunk each text begins a chunk.
    """
    if padding_mask is None or torch.compiler.is_compiling():
        return None
    ends = torch.arange(1, padding_mask.size(1) + 1, device=padding_mask.device)
    lengths = torch.where(padding_mask, 0, ends).amax(dim=1)
    aligned = 0 < chunk_size < padding_mask.size(1)
    slots = (lengths + chunk_size - 1) // chunk_size * chunk_size if aligned else lengths
    if not 0 < int(slots.sum()) < WORTH * padding_mask.numel():
        return None
    return Packing(padding_mask, lengths, slots, aligned)


def depends_on_rows(module: nn.Module) -> Optional[str]:
    """Return the reason why training on packed texts differs from training on padded ones, or None."""
    if isinstance(module, BatchStatistics):
        return "batch norm counts padded positions, as published"
    if isinstance(module, Dropout) and module.p > 0 and (module.feature or isinstance(module, StochasticDepth)):
        return "dropout of whole features or samples is drawn once for each row"
    return None
