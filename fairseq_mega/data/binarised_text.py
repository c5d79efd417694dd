"""Binarised text as one sequence of tokens with line ends, from which training blocks and segments are cut."""

from typing import Any, Callable, Optional, Tuple

import numpy as np
import torch
from torch import Tensor


class BinarisedText:
    """Lines of a binarised text.

    Args:
        lines: fairseq's indexed dataset; each item has the tokens of a line, including ``</s>``.
        name: name of the split, for messages.

    Raises:
        ValueError: if the text has no token.
    """

    def __init__(self, lines: Any, name: str) -> None:
        if getattr(lines, "supports_prefetch", False):  # --dataset-impl cached requires prefetching
            lines.prefetch(range(len(lines)))
        self.lines = lines
        self.name = name
        self.ends = np.cumsum(np.asarray(lines.sizes, dtype=np.int64))  # (lines,)
        if self.tokens == 0:
            raise ValueError(f"the split {name!r} has no token: binarise a text that is not empty")

    @property
    def tokens(self) -> int:
        """Number of tokens of all lines."""
        return int(self.ends[-1]) if len(self.ends) else 0

    def largest(self) -> int:
        """Return the largest token id in the text; reads the whole text."""
        index = getattr(self.lines, "_index", None)
        if index is None or not hasattr(self.lines, "_bin_buffer"):
            return max(int(line.max()) for line in (self.lines[i] for i in range(len(self.ends))) if len(line))
        return int(np.frombuffer(self.lines._bin_buffer, dtype=index.dtype).max())  # of --dataset-impl mmap

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of lines that are cropped at random; lengths do not change."""
        if hasattr(self.lines, "set_epoch"):
            self.lines.set_epoch(epoch)

    def start(self, line: int) -> int:
        """Return the number of tokens before a line."""
        return int(self.ends[line - 1]) if line > 0 else 0

    def cut(self, draw_length: Callable[[], int], longest: Optional[int] = None) -> np.ndarray:
        """Cut the text at line ends.

        Args:
            draw_length: returns the maximum tokens of the next piece; a longer single line is a separate piece.
            longest: maximum tokens of any piece, at least as many as ``draw_length`` returns; a longer line is cut.
                None: no limit.

        Returns:
            (pieces, 2) int64, the number of tokens before the beginning and before the end of each non-empty piece.
        """
        line, bounds = 0, [0]
        while line < len(self.ends):
            fits = int(np.searchsorted(self.ends, bounds[-1] + draw_length(), side="right"))
            line = max(fits, line + 1)
            begin, end = bounds[-1], self.start(line)
            bounds += [*range(begin, end, longest or self.tokens)[1:], end]
        pieces = np.stack([bounds[:-1], bounds[1:]], axis=1)
        return pieces[pieces[:, 0] < pieces[:, 1]]  # lines may have no token

    def span(self, begin: int, end: int) -> Tensor:
        """Return the tokens begin <= i < end of the whole text, (end - begin,) long."""
        first, last = np.searchsorted(self.ends, [begin, end - 1], side="right")
        tokens = torch.cat([self.lines[line] for line in range(first, last + 1)])
        offset = begin - self.start(int(first))
        return tokens[offset : offset + end - begin].long()

    def longest(self) -> Tuple[int, int]:
        """Return the index of the longest line, and its length."""
        sizes = np.diff(self.ends, prepend=0)
        line = int(sizes.argmax())
        return line, int(sizes[line])


def inputs_of(target: Tensor, before: int) -> Tensor:
    """Return the input (L,) to predict ``target`` (L,): the token ``before``, then all tokens but the last."""
    return torch.cat([target.new_tensor([before]), target[:-1]])
