"""Training sequences of equal length from a stream of documents, and batches of consecutive sequences."""

import logging
import math
from typing import Any, Dict, List, Sequence, Tuple

import numpy as np
from fairseq.data import Dictionary, iterators

from .binarised_text import BlockDataset
from .document_stream import DocumentStream

DIVISION, BLOCKS = "division_of_epoch", "blocks_of_epoch"  # in the state of an iterator

logger = logging.getLogger(__name__)


class StreamBlockDataset(BlockDataset):
    """Consecutive blocks of a stream: every token of an epoch is the target of exactly one block.

    The input of a block is the token before the block (``</s>`` for the first block), then all tokens but the last. The
    last block is shorter if ``length`` does not divide the number of tokens. A negative index is no block.

    Args:
        stream: stream of documents.
        dictionary: dictionary with padding and ``</s>``.
        length: tokens of a block.
    """

    def __init__(self, stream: DocumentStream, dictionary: Dictionary, length: int) -> None:
        super().__init__(stream, dictionary)
        self.length = length

    def set_epoch(self, epoch: int) -> None:
        """Draw the order of the documents for an epoch."""
        self.text.set_epoch(epoch)

    def num_tokens(self, index: int) -> int:
        """Return the length of a block."""
        return min(self.length, self.text.tokens - self.length * index)

    size = num_tokens

    def __len__(self) -> int:
        return math.ceil(self.text.tokens / self.length)

    def __getitem__(self, index: int) -> Dict[str, Any]:
        begin = self.length * int(index)
        return {} if index < 0 else self.block(int(index), begin, begin + self.num_tokens(int(index)), index == 0)

    def collater(self, samples: List[Dict[str, Any]]) -> Dict[str, Any]:
        """Return a batch of blocks, right padded; empty if there are none."""
        return super().collater(list(filter(None, samples)))


def divided(blocks: np.ndarray, size: int, shards: int) -> np.ndarray:
    """Return the batches of all shards, (shards, batches, size) int64, filled up with -1 at the end.

    Blocks stay consecutive within a shard, so a process reads one contiguous part of the stream.

    Args:
        blocks: (n,) indices of blocks.
        size: blocks of a batch.
        shards: number of processes.
    """
    each = math.ceil(math.ceil(len(blocks) / size) / shards)
    filled = np.full(shards * each * size, -1, dtype=np.int64)
    filled[: len(blocks)] = blocks
    return filled.reshape(shards, each, size)


class BlockIterator(iterators.EpochBatchIterator):
    """fairseq's iterator over batches of consecutive blocks.

    Args:
        dataset: training dataset.
        size: blocks of a batch.
        options: options of fairseq's iterator.
    """

    def __init__(self, dataset: StreamBlockDataset, size: int, **options: Any) -> None:
        super().__init__(dataset, dataset.collater, [], disable_shuffling=True, **options)
        self.size = size
        self.divide(np.arange(len(dataset)))

    def divide(self, blocks: np.ndarray) -> None:
        """Divide blocks among the processes."""
        cuts = np.flatnonzero(np.diff(blocks) != 1) + 1
        parts = np.split(blocks, cuts) if len(blocks) else []
        self.ranges: Sequence[Tuple[int, int]] = [(int(part[0]), int(part[-1]) + 1) for part in parts]
        self.batches = divided(blocks, self.size, self.num_shards)[self.shard_id].copy()

    def __len__(self) -> int:
        return len(self.batches)

    @property
    def first_batch(self) -> Any:
        """First batch of the stream, from which fairseq builds dummy batches for processes without a batch."""
        return self.collate_fn([self.dataset[0]])

    def state_dict(self) -> Dict[str, Any]:
        """Return fairseq's state, and within an epoch how its blocks are divided among the processes."""
        division = {"ranges": self.ranges, "size": self.size, "shards": self.num_shards}
        within = {} if self.end_of_epoch() else {DIVISION: division, BLOCKS: len(self.dataset)}
        return {**super().state_dict(), **within}

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Continue an epoch; with other processes or batches, with the blocks that no process has read."""
        if state_dict.get(BLOCKS) == len(self.dataset):  # the text is the same
            division, place = state_dict[DIVISION], state_dict["iterations_in_epoch"]
            size, shards = division["size"], division["shards"]
            blocks = np.array([block for ends in division["ranges"] for block in range(*ends)], dtype=np.int64)
            if place > 0 and (self.size, self.num_shards) != (size, shards):
                unread = divided(blocks, size, shards)[:, place:].ravel()
                blocks = unread[unread >= 0]
                state_dict = {**state_dict, "iterations_in_epoch": 0}
                logger.info(f"{len(blocks):,} sequences of the epoch are divided among {self.num_shards} processes")
            self.divide(blocks)
        super().load_state_dict(state_dict)

    def ordered_batches(self, epoch: int, fix_batches_to_gpus: bool, shuffle: bool) -> np.ndarray:
        """Return the batches of this process; the stream has the order of the epoch."""
        return self.batches
