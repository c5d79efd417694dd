"""Training blocks of whole lines, with new random lengths in every epoch."""

import logging
from typing import Any, Dict, List, Optional

import numpy as np
from fairseq.data import Dictionary
from fairseq.data.monolingual_dataset import collate

from .binarised_text import BinarisedText, inputs_of
from .sized import SizedDataset

logger = logging.getLogger(__name__)


class TrainingBlockDataset(SizedDataset):
    """Blocks of whole lines for training a language model.

    The maximum length of every block is drawn from {low, low + 1, ..., high} chunks; lines are added while they fit (a
    longer single line is a separate block). The input is ``</s>`` and the block without its last token. The cuts depend
    only on seed and epoch, so a resumed run repeats them.

    Args:
        text: lines to cut.
        dictionary: dictionary with padding and ``</s>``.
        chunk: tokens of a chunk.
        low, high: minimum and maximum of the drawn number of chunks.
        seed: seed of the cuts.
        longest: maximum tokens of any block; None: no limit.
        longest_option: option that sets ``longest``, for messages.
        chunk_option: option that sets ``chunk``, for messages.

    Raises:
        ValueError: if the lengths are out of range.

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
        longest_option: str = "",
        chunk_option: str = "--tokens-per-sample",
    ) -> None:
        if not 1 <= low <= high:
            raise ValueError(
                f"--variant-block-multiple-min {low} and --variant-block-multiple-max {high}: give whole numbers of "
                f"chunks with 1 <= min <= max"
            )
        if longest is not None:
            if chunk * high > longest:
                raise ValueError(
                    f"blocks of up to --variant-block-multiple-max {high} chunks of {chunk} tokens ({chunk_option}) "
                    f"exceed {longest_option} {longest}: give a smaller multiple, or raise {longest_option}"
                )
            line, tokens = text.longest()
            if tokens > longest:
                logger.info(
                    f"{text.name}: lines longer than {longest_option} {longest} are cut; line {line + 1} is the "
                    f"longest, {tokens:,} tokens"
                )
        self.longest = longest
        self.text, self.dictionary = text, dictionary
        self.chunk, self.low, self.high, self.seed = chunk, low, high, seed
        self.set_epoch(1)

    def set_epoch(self, epoch: int) -> None:
        """Cut the text for an epoch."""
        self.text.set_epoch(epoch)
        draw = np.random.default_rng((self.seed, epoch))
        blocks = self.text.cut(lambda: self.chunk * int(draw.integers(self.low, self.high + 1)), self.longest)
        self.starts, self.sizes = blocks[:, 0], blocks[:, 1] - blocks[:, 0]

    @property
    def can_reuse_epoch_itr_across_epochs(self) -> bool:
        """Return False: blocks change in every epoch."""
        return False

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, index: int) -> Dict[str, Any]:
        begin = int(self.starts[index])
        target = self.text.span(begin, begin + int(self.sizes[index]))
        return {"id": index, "source": inputs_of(target, self.dictionary.eos()), "target": target}

    def collater(self, samples: List[Dict[str, Any]]) -> Dict[str, Any]:
        """Return a batch of blocks, right padded."""
        return collate(samples, self.dictionary.pad(), self.dictionary.eos())

    def ordered_indices(self) -> np.ndarray:
        """Return the blocks sorted by length; blocks of equal length have a random order."""
        return np.lexsort([np.random.permutation(len(self)), self.sizes])
