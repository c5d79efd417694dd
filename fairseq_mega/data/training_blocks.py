"""Training blocks of whole lines, whose lengths are drawn anew in every epoch."""

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

    For every block a target length is drawn from {low, low + 1, ..., high} chunks; lines are added while the block
    stays within it (a longer single line is a block of its own). Input is ``</s>`` and the block without its last
    token. The cuts depend on seed and epoch only, so that a resumed run repeats them.

    Args:
        text: lines to cut.
        dictionary: for padding and ``</s>``.
        chunk: tokens of a chunk.
        low, high: chunks of the shortest and longest block.
        seed: of the cuts.
        longest: tokens of a block at most; None: no limit.
        longest_option: option that sets it, for messages.
        chunk_option: option of the chunk, for the message.

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
                    f"exceed {longest_option} {longest}: give a smaller multiple or raise the option"
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
        """False: blocks change from epoch to epoch."""
        return False

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, index: int) -> Dict[str, Any]:
        begin = int(self.starts[index])
        target = self.text.span(begin, begin + int(self.sizes[index]))
        return {"id": index, "source": inputs_of(target, self.dictionary.eos()), "target": target}

    def collater(self, samples: List[Dict[str, Any]]) -> Dict[str, Any]:
        """Batch of blocks, right padded."""
        return collate(samples, self.dictionary.pad(), self.dictionary.eos())

    def ordered_indices(self) -> np.ndarray:
        """Blocks by length, those of equal length in random order."""
        return np.lexsort([np.random.permutation(len(self)), self.sizes])
