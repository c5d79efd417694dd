"""Binarised text as one sequence of tokens with line ends, and the blocks of it that a model is trained on."""

from typing import Any, Callable, Dict, List, Optional

import numpy as np
import torch
from fairseq.data import Dictionary
from fairseq.data.monolingual_dataset import collate
from torch import Tensor

from .sized import SizedDataset


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
        self.tokens = int(self.ends[-1]) if len(self.ends) else 0
        if self.tokens == 0:
            raise ValueError(f"the split {name!r} has no token: binarise a text that is not empty")

    def largest(self) -> int:
        """Return the largest token id in the text; reads the whole text."""
        filled = np.flatnonzero(np.diff(self.ends, prepend=0))  # lines with tokens
        return max(int(self.lines[int(line)].max()) for line in filled)

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


class BlockDataset(SizedDataset):
    """Blocks of a text to predict, each from the token before it, then from all its tokens but the last.

    Args:
        text: text, whose ``span`` returns tokens.
        dictionary: dictionary with padding and ``</s>``.
    """

    def __init__(self, text: Any, dictionary: Dictionary) -> None:
        self.text, self.dictionary = text, dictionary

    def block(self, index: int, begin: int, end: int, begins_anew: bool) -> Dict[str, Any]:
        """Return the tokens begin <= i < end as an item; ``</s>`` is before them if they begin anew."""
        if not begins_anew:
            tokens = self.text.span(begin - 1, end)
            return {"id": index, "source": tokens[:-1], "target": tokens[1:]}
        target = self.text.span(begin, end)
        source = torch.cat([target.new_tensor([self.dictionary.eos()]), target[:-1]])
        return {"id": index, "source": source, "target": target}

    def collater(self, samples: List[Dict[str, Any]]) -> Dict[str, Any]:
        """Return a batch of blocks, right padded."""
        return collate(samples, self.dictionary.pad(), self.dictionary.eos())


class TrainingBlockDataset(BlockDataset):
    """Blocks of whole lines for training a language model, with new random lengths in every epoch.

    The maximum length of every block is drawn from {low, low + 1, ..., high} chunks; lines are added while they fit (a
    longer single line is a separate block). The input is ``</s>`` and the block without its last token. The cuts depend
    only on seed and epoch, so a resumed run repeats them.

    Args:
        text: lines to cut.
        dictionary: dictionary with padding and ``</s>``.
        chunk: tokens of a chunk.
        low, high: minimum and maximum of the drawn number of chunks.
        seed: seed of the cuts.
        longest: maximum tokens of any block; a longer line is cut; None: no limit.

    Source: the published code (facebookresearch/mega) for WikiText-103 and enwik8.
    """

    def __init__(
        self,
        text: BinarisedText,
        dictionary: Dictionary,
        chunk: int,
        low: int,
        high: int,
        seed: int,
        longest: Optional[int] = None,
    ) -> None:
        super().__init__(text, dictionary)
        self.chunk, self.low, self.high, self.seed, self.longest = chunk, low, high, seed, longest
        self.set_epoch(1)

    def set_epoch(self, epoch: int) -> None:
        """Cut the text for an epoch."""
        if hasattr(self.text.lines, "set_epoch"):  # of lines that are cropped at random; lengths do not change
            self.text.lines.set_epoch(epoch)
        draw = np.random.default_rng((self.seed, epoch))
        blocks = self.text.cut(lambda: self.chunk * int(draw.integers(self.low, self.high + 1)), self.longest)
        self.starts, self.sizes = blocks[:, 0], blocks[:, 1] - blocks[:, 0]

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, index: int) -> Dict[str, Any]:
        begin = int(self.starts[index])
        return self.block(index, begin, begin + int(self.sizes[index]), begins_anew=True)

    def ordered_indices(self) -> np.ndarray:
        """Return the blocks sorted by length; blocks of equal length have a random order."""
        return np.lexsort([np.random.permutation(len(self)), self.sizes])
