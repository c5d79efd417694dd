"""Training sequences of equal length from a stream of documents, and batches that are computed on demand."""

import logging
import math
from typing import Any, Dict, List, Sequence, Tuple, Union, overload

from fairseq.data import Dictionary, FairseqDataset, iterators
from fairseq.data.monolingual_dataset import collate

from .binarised_text import inputs_of
from .document_stream import DocumentStream

DIVISION, BLOCKS = "division_of_epoch", "blocks_of_epoch"  # in the state of an iterator

logger = logging.getLogger(__name__)


class StreamBlockDataset(FairseqDataset):
    """Consecutive blocks of a stream: every token of an epoch is the target of exactly one block.

    The input of a block is the token before the block (``</s>`` for the first block), then all tokens but the last. The
    last block is shorter if ``length`` does not divide the number of tokens.

    Args:
        stream: stream of documents.
        dictionary: dictionary with padding and ``</s>``.
        length: tokens of a block.
    """

    def __init__(self, stream: DocumentStream, dictionary: Dictionary, length: int) -> None:
        self.stream, self.dictionary, self.length = stream, dictionary, length

    def set_epoch(self, epoch: int) -> None:
        """Draw the order of the documents for an epoch."""
        self.stream.set_epoch(epoch)

    def num_tokens(self, index: int) -> int:
        """Return the length of a block."""
        return min(self.length, self.stream.tokens - self.length * index)

    size = num_tokens

    def __len__(self) -> int:
        return math.ceil(self.stream.tokens / self.length)

    def __getitem__(self, index: int) -> Dict[str, Any]:
        begin = self.length * index
        target = self.stream.span(begin, begin + self.num_tokens(index))
        before = int(self.stream.span(begin - 1, begin)) if begin > 0 else self.dictionary.eos()
        return {"id": index, "source": inputs_of(target, before), "target": target}

    def collater(self, samples: List[Dict[str, Any]]) -> Dict[str, Any]:
        """Return a batch of blocks, right padded."""
        return collate(samples, self.dictionary.pad(), self.dictionary.eos())


Ranges = Sequence[Tuple[int, int]]  # of blocks, from the first one to the one after the last


class BlockBatches(Sequence[List[int]]):
    """Batches of one shard: consecutive blocks, so a process reads one contiguous part of the stream.

    All shards have the same number of batches; the last batches of the last shards may be empty.

    Args:
        ranges: blocks of all shards.
        size: blocks of a batch.
        shards, shard: number of processes, and the index of this process.
    """

    def __init__(self, ranges: Ranges, size: int, shards: int, shard: int) -> None:
        self.ranges, self.size = ranges, size
        self.places = sum(end - begin for begin, end in ranges)
        each = math.ceil(math.ceil(self.places / size) / shards)
        self.numbers = range(shard * each, (shard + 1) * each)

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, index: int) -> List[int]: ...

    @overload
    def __getitem__(self, index: slice) -> "BlockBatches": ...

    def __getitem__(self, index: Union[int, slice]) -> Union[List[int], "BlockBatches"]:
        numbers = self.numbers[index]
        if isinstance(numbers, int):
            found = self._between(numbers * self.size, (numbers + 1) * self.size)
            return [block for begin, end in found for block in range(begin, end)]
        rest = BlockBatches(self.ranges, self.size, 1, 0)
        rest.numbers = numbers
        return rest

    def after(self, place: int) -> Ranges:
        """Return the blocks of all shards that none has read after ``place`` batches of each."""
        each = len(self)
        begins = range(place * self.size, self.places, each * self.size)
        return [part for begin in begins for part in self._between(begin, begin + (each - place) * self.size)]

    def _between(self, begin: int, end: int) -> Ranges:
        """Return the blocks from one place in the ranges to another."""
        found, first = [], 0
        for start, stop in self.ranges:
            low, high = max(begin - first, 0), min(end - first, stop - start)
            if low < high:
                found.append((start + low, start + high))
            first += stop - start
        return found


class BlockIterator(iterators.EpochBatchIterator):
    """fairseq's iterator over batches that are computed one by one.

    Args:
        dataset: training dataset.
        size: blocks of a batch.
        options: options of fairseq's iterator.
    """

    def __init__(self, dataset: StreamBlockDataset, size: int, **options: Any) -> None:
        super().__init__(dataset, dataset.collater, [], disable_shuffling=True, **options)
        self.size = size
        self.batches = self._batches([(0, len(dataset))])

    def _batches(self, ranges: Ranges) -> BlockBatches:
        return BlockBatches(ranges, self.size, self.num_shards, self.shard_id)

    def __len__(self) -> int:
        return len(self.batches)

    @property
    def first_batch(self) -> Any:
        """First batch of the stream, from which fairseq builds dummy batches for processes without a batch."""
        return self.collate_fn([self.dataset[0]])

    def state_dict(self) -> Dict[str, Any]:
        """Return fairseq's state, and within an epoch how its blocks are divided among the processes."""
        division = {"ranges": self.batches.ranges, "size": self.size, "shards": self.num_shards}
        within = {} if self.end_of_epoch() else {DIVISION: division, BLOCKS: len(self.dataset)}
        return {**super().state_dict(), **within}

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Continue an epoch; with other processes or batches, with the blocks that no process has read."""
        if state_dict.get(BLOCKS) == len(self.dataset):  # the text is the same
            division, place = state_dict[DIVISION], state_dict["iterations_in_epoch"]
            before = BlockBatches(**division, shard=0)
            if place == 0 or (self.size, self.num_shards) == (division["size"], division["shards"]):
                self.batches = self._batches(before.ranges)
            else:
                self.batches = self._batches(before.after(place))
                logger.info(
                    f"epoch {state_dict['epoch']}: the {self.batches.places:,} of {len(self.dataset):,} sequences that "
                    f"no process has read are divided among {self.num_shards} processes, {len(self):,} batches each"
                )
                state_dict = {**state_dict, "iterations_in_epoch": 0}
        super().load_state_dict(state_dict)

    def next_epoch_itr(self, shuffle: bool = True, *options: Any, **more: Any) -> Any:
        """Return the iterator of the next epoch, as the base class does.

        Raises:
            ValueError: if ``shuffle`` is False.
        """
        if not shuffle:
            raise ValueError(
                f"--curriculum requires epoch {self.next_epoch_idx} in the order of the data, but documents are "
                f"shuffled in every epoch: omit --curriculum"
            )
        return super().next_epoch_itr(shuffle, *options, **more)

    def ordered_batches(self, epoch: int, fix_batches_to_gpus: bool, shuffle: bool) -> BlockBatches:
        """Return the batches of this process; the stream has the order of the epoch."""
        return self.batches
