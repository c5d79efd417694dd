"""A binarised text as one sequence of tokens with line ends: training blocks and streamed segments are cut from it."""

from typing import Any, Callable, Optional, Tuple

import numpy as np
import torch
from torch import Tensor

MANY_UNKNOWN = 0.05  # of the words: a model that reads so many as <unk> is better trained on subwords or bytes


class BinarisedText:
    """Lines of a binarised text.

    Args:
        lines: fairseq's indexed dataset: each item the tokens of a line, ``</s>`` included.
        name: of the split, for messages.

    Raises:
        ValueError: if there is no token at all.
    """

    def __init__(self, lines: Any, name: str) -> None:
        if getattr(lines, "supports_prefetch", False):  # of --dataset-impl cached, which reads nothing else
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
        """Largest number of the text, which is read to its end."""
        index = getattr(self.lines, "_index", None)
        if index is None or not hasattr(self.lines, "_bin_buffer"):
            return max(int(line.max()) for line in (self.lines[i] for i in range(len(self.ends))) if len(line))
        return int(np.frombuffer(self.lines._bin_buffer, dtype=index.dtype).max())  # of --dataset-impl mmap

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of lines that are cropped at random; their lengths stay."""
        if hasattr(self.lines, "set_epoch"):
            self.lines.set_epoch(epoch)

    def start(self, line: int) -> int:
        """Number of tokens before a line."""
        return int(self.ends[line - 1]) if line > 0 else 0

    def cut(self, draw_length: Callable[[], int], longest: Optional[int] = None) -> np.ndarray:
        """Cut the text at line ends.

        Args:
            draw_length: how many tokens the next piece may have; a longer single line is a piece of its own.
            longest: tokens of a piece at most, not fewer than are drawn; a longer line is cut. None: no limit.

        Returns:
            (pieces, 2) int64, the tokens before the beginning and before the end of each; none is empty.
        """
        line, bounds = 0, [0]
        while line < len(self.ends):
            fits = int(np.searchsorted(self.ends, bounds[-1] + draw_length(), side="right"))
            line = max(fits, line + 1)
            begin, end = bounds[-1], self.start(line)
            bounds += [*range(begin, end, longest or self.tokens)[1:], end]
        pieces = np.stack([bounds[:-1], bounds[1:]], axis=1)
        return pieces[pieces[:, 0] < pieces[:, 1]]  # lines may be without any token

    def span(self, begin: int, end: int) -> Tensor:
        """Tokens begin <= i < end of the whole text, (end - begin,) long."""
        first, last = np.searchsorted(self.ends, [begin, end - 1], side="right")
        tokens = torch.cat([self.lines[line] for line in range(first, last + 1)])
        offset = begin - self.start(int(first))
        return tokens[offset : offset + end - begin].long()

    def longest(self) -> Tuple[int, int]:
        """Number of the longest line, counted from 0, and its length."""
        sizes = np.diff(self.ends, prepend=0)
        line = int(sizes.argmax())
        return line, int(sizes[line])


def inputs_of(target: Tensor, before: int) -> Tensor:
    """Return a language model's input to predict ``target`` (L,): the token ``before`` it, then all but its last."""
    return torch.cat([target.new_tensor([before]), target[:-1]])
