"""Corpus of JSON lines as one stream of tokens, shuffled in every epoch and read from disk span by span in batches."""

import logging
import math
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np
import torch
from fairseq.data import Dictionary, iterators
from torch import Tensor

from .binarised_text import BlockDataset
from .json_lines import Source, read_texts
from .text_units import SubwordVocabulary
from .token_index import load_or_count

DIVISION, BLOCKS = "division_of_epoch", "blocks_of_epoch"  # in the state of an iterator

logger = logging.getLogger(__name__)


class DocumentStream:
    """Stream of the documents of some files; a document is its tokens and ``</s>``.

    Seed and epoch determine the random order of the spans of all files and of the documents of each span. Only the
    current spans are in memory.

    Args:
        sources: the files.
        vocabulary: vocabulary of the tokens.
        name: name of the split, for messages.
        seed: seed of the orders.
        index_folder: see :func:`load_or_count`.

    Raises:
        ValueError: if the files have no token or a bad line.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        vocabulary: SubwordVocabulary,
        name: str,
        seed: int,
        index_folder: Optional[Path] = None,
    ) -> None:
        self.sources, self.vocabulary, self.name, self.seed = sources, vocabulary, name, seed
        found = [load_or_count(source, vocabulary, index_folder) for source in sources]
        self.documents = sum(index.documents for index in found)
        self.skipped = sum(index.skipped for index in found)
        self.files = np.concatenate([np.full(len(index.tokens), i, np.int32) for i, index in enumerate(found)])
        self.begins = np.concatenate([index.begins[:-1] for index in found])  # (spans,), like stops and counts
        self.stops = np.concatenate([index.begins[1:] for index in found])
        self.counts = np.concatenate([index.tokens for index in found])
        self.tokens = int(self.counts.sum())  # of all documents
        if self.tokens == 0:
            raise ValueError(f"the split {name!r} has no token ({sources[0].path})")
        self._read: List[tuple] = []  # the last two spans: index in the order of the epoch, tokens
        self.set_epoch(1)

    def set_epoch(self, epoch: int) -> None:
        """Draw the order of an epoch."""
        self.epoch = epoch
        self.order = np.random.default_rng((self.seed, epoch)).permutation(len(self.counts))
        self.ends = np.cumsum(self.counts[self.order])  # (spans,)
        self._read = []

    def span(self, begin: int, end: int) -> Tensor:
        """Return the tokens begin <= i < end of the epoch's stream, (end - begin,) long.

        Raises:
            ValueError: if a file has changed since its tokens were counted.
        """
        first, last = np.searchsorted(self.ends, [begin, end - 1], side="right")
        tokens = np.concatenate([self._tokens_of(index) for index in range(int(first), int(last) + 1)])
        offset = begin - (int(self.ends[first - 1]) if first > 0 else 0)
        return torch.from_numpy(tokens[offset : offset + end - begin].astype(np.int64))

    def _tokens_of(self, index: int) -> np.ndarray:
        """Return the tokens of a span by its index in the order of the epoch."""
        for known, tokens in self._read:
            if known == index:
                return tokens
        span = int(self.order[index])
        source = self.sources[self.files[span]]
        found = read_texts(source, int(self.begins[span]), int(self.stops[span]))
        texts = [text for text in found if text is not None]
        shuffled = np.random.default_rng((self.seed, self.epoch, span)).permutation(len(texts))
        tokens = np.concatenate([np.zeros(0, np.int32), *self.vocabulary.encode([texts[i] for i in shuffled])])
        if len(tokens) != self.counts[span]:
            raise ValueError(f"{source.path} changed after its tokens were counted: start the training again")
        self._read = [*self._read[-1:], (index, tokens)]
        return tokens


class ReadDocuments:
    """Documents of a validation text in the order of their files, in memory as tokens.

    Args:
        sources, vocabulary: see :class:`DocumentStream`.
    """

    def __init__(self, sources: Sequence[Source], vocabulary: SubwordVocabulary) -> None:
        self.tokens: List[np.ndarray] = []
        self.skipped = 0
        for source in sources:
            for text in read_texts(source, 0, source.path.stat().st_size):
                self.tokens += vocabulary.encode([text]) if text is not None else []
                self.skipped += text is None
        self.sizes = np.array([len(tokens) for tokens in self.tokens], dtype=np.int64)  # (documents,)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> Tensor:
        return torch.from_numpy(self.tokens[index].astype(np.int64))


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
