"""Parts of sequences, for instance documents, as separate rows for operators that read a row from its beginning."""

from typing import Iterable, List, NamedTuple, Optional

import torch
import torch.nn.functional as F
from torch import Tensor


class Group(NamedTuple):
    """Parts of similar length, R rows of W steps; a shorter one repeats its last step."""

    indices: Tensor  # (R,) long, the indices of the parts
    absent: Tensor  # (R, W) bool, True beyond the end of a part


class Parts:
    """The consecutive parts of the sequences of a batch.

    Parts of similar length share a group, so that one long part does not widen the rows of many short ones.

    Args:
        begins: (B, L) bool, B and L at least 1, True at the first step of a part; step 0 always begins a part.
        ratio: the largest ratio of the longest part of a group to the shortest.
        least: number of parts that may share a group whatever their lengths.

    Attributes:
        row: (P,) long, the sequence of each of the P parts, counted along the flattened batch.
        last: (B,) long, the last part of each sequence.
        groups: one or more calls of an operator.
    """

    def __init__(self, begins: Tensor, ratio: float = 2.0, least: int = 1) -> None:
        batch, length = begins.shape
        self.begins = begins
        every = torch.cat([torch.ones_like(begins[:, :1]), begins[:, 1:]], dim=1).flatten()
        first = every.nonzero().squeeze(1)
        lengths = torch.diff(first, append=first.new_tensor([batch * length]))
        self.row = first // length
        self.last = every.view(batch, length).sum(1).cumsum(0) - 1
        self.groups: List[Group] = []
        all_steps: List[Tensor] = []
        for indices in alike(lengths, ratio, least):
            ends = lengths[indices].unsqueeze(1)
            offsets = torch.arange(int(ends[0]), device=begins.device)
            all_steps.append((first[indices].unsqueeze(1) + torch.minimum(offsets, ends - 1)).flatten())
            self.groups.append(Group(indices, offsets >= ends))
        present = torch.cat([~group.absent.flatten() for group in self.groups]).nonzero().squeeze(1)
        self._steps = torch.cat(all_steps)  # of all rows, in the flattened axes of batch and time
        steps = self._steps[present]
        self._places = torch.empty_like(steps).index_put((steps,), present)  # of each step among those of all groups
        indices = torch.cat([group.indices for group in self.groups])
        self._order = torch.empty_like(indices).index_put((indices,), torch.arange(len(indices), device=indices.device))

    def split(self, x: Tensor) -> List[Tensor]:
        """Return the rows (R, W, ...) of each group from x (B, L, ...).

        All groups are gathered at once: the backward pass writes the gradient of x once, not once for each group.
        """
        gathered = x.flatten(0, 1).index_select(0, self._steps)
        rows = gathered.split([group.absent.numel() for group in self.groups])
        return [part.unflatten(0, group.absent.shape) for part, group in zip(rows, self.groups)]

    def absent(self, padding_mask: Optional[Tensor]) -> List[Tensor]:
        """Return the steps (R, W) of each group that are beyond the end of a part or padding.

        Args:
            padding_mask: (B, L) bool, True = padding, or None.
        """
        beyond = [group.absent for group in self.groups]
        return beyond if padding_mask is None else [a | b for a, b in zip(beyond, self.split(padding_mask))]

    def join(self, rows: Iterable[Tensor]) -> Tensor:
        """Return the sequences (B, L, ...) from the rows (R, W, ...) of all groups, in their order."""
        steps = torch.cat([part.flatten(0, 1) for part in rows])
        return steps.index_select(0, self._places).unflatten(0, self.begins.shape)

    def join_results(self, results: Iterable[Tensor]) -> Tensor:
        """Return results (P, ...) by number of the part, from the results (R, ...) of all groups, in their order."""
        return torch.cat(list(results))[self._order]

    def carried(self, before: Tensor, fresh: Tensor) -> Tensor:
        """Return the initial values (P, ...) of the parts: ``before`` for a sequence's first part, ``fresh`` for all
        others.

        Args:
            before: (B, ...), for sequences that continue earlier ones.
            fresh: of the same shape, for all other parts.
        """
        first = F.pad(torch.diff(self.row), (1, 0), value=1) > 0
        goes_on = first & ~self.begins[:, 0][self.row]
        return torch.where(goes_on.view(-1, *(1,) * (before.dim() - 1)), before[self.row], fresh[self.row])


def alike(lengths: Tensor, ratio: float, least: int) -> List[Tensor]:
    """Return groups of parts of similar length: the indices of the parts, the longest part first.

    Args:
        lengths: (P,) long.
        ratio, least: as :class:`Parts` has them.
    """
    descending, order = lengths.sort(descending=True, stable=True)
    known: List[int] = descending.tolist()
    starts: List[int] = []
    for index, length in enumerate(known):
        if not starts or (index - starts[-1] >= least and length * ratio < known[starts[-1]]):
            starts.append(index)
    return list(order.tensor_split(starts[1:]))
