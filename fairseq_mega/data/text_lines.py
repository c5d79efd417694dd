"""A binarised text as one sequence of tokens with line ends: the base of training blocks and streams."""

from typing import Any, Tuple

import numpy as np
import torch
from torch import Tensor


class TextLines:
    """Lines of a binarised text.

    Args:
        lines: fairseq's indexed dataset: each item the tokens of a line, ``</s>`` included.
        name: of the split, for messages.

    Raises:
        ValueError: if there is no token at all.
    """

    def __init__(self, lines: Any, name: str) -> None:
        self.lines = lines
        self.name = name
        self.ends = np.cumsum(np.asarray(lines.sizes, dtype=np.int64))  # (lines,)
        if self.tokens == 0:
            raise ValueError(f"the split {name!r} has no token: binarise a text that is not empty")

    @property
    def tokens(self) -> int:
        """Number of tokens of all lines."""
        return int(self.ends[-1]) if len(self.ends) else 0

    def start(self, line: int) -> int:
        """Number of tokens before a line."""
        return int(self.ends[line - 1]) if line > 0 else 0

    def length(self, first: int, last: int) -> int:
        """Number of tokens of the lines first <= line < last."""
        return self.start(last) - self.start(first)

    def take(self, first: int, longest: int) -> int:
        """The line before which as many whole lines from ``first`` on end as ``longest`` tokens hold; one at least."""
        last = int(np.searchsorted(self.ends, self.start(first) + longest, side="right"))
        return max(last, first + 1)

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
    """What a language model reads to predict ``target`` (L,): the token ``before`` it, then all but its last."""
    return torch.cat([target.new_tensor([before]), target[:-1]])
