"""Training sequences of equal length from a stream of documents, and their batches, which are listed nowhere."""

import math
from typing import Any, Dict, List, Sequence, Union, overload

from fairseq.data import Dictionary, FairseqDataset, iterators
from fairseq.data.monolingual_dataset import collate

from .binarised_text import inputs_of
from .document_stream import DocumentStream


class StreamBlockDataset(FairseqDataset):
    """Consecutive blocks of a stream: every token of an epoch is the target of exactly one.

    The input of a block is the token before it, ``</s>`` at the beginning, then all but its last. The last block is
    shorter where ``length`` does not divide the tokens.

    Args:
        stream: of documents.
        dictionary: for padding and ``</s>``.
        length: tokens of a block.
    """

    def __init__(self, stream: DocumentStream, dictionary: Dictionary, length: int) -> None:
        self.stream, self.dictionary, self.length = stream, dictionary, length

    def set_epoch(self, epoch: int) -> None:
        """Draw the order of the documents for an epoch."""
        self.stream.set_epoch(epoch)

    def num_tokens(self, index: int) -> int:
        """Length of a block."""
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
        """Batch of blocks, right padded."""
        return collate(samples, self.dictionary.pad(), self.dictionary.eos())


class BlockBatches(Sequence[List[int]]):
    """Batches of one shard: consecutive blocks, so that a process reads a part of the stream from beginning to end.

    All shards have the same number of batches; the last ones of the last shards may be empty.

    Args:
        blocks: in all.
        size: of a batch.
        shards, shard: processes, and which this is.
    """

    def __init__(self, blocks: int, size: int, shards: int, shard: int) -> None:
        self.blocks, self.size = blocks, size
        each = math.ceil(math.ceil(blocks / size) / shards)
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
            first = min(numbers * self.size, self.blocks)
            return list(range(first, min(first + self.size, self.blocks)))
        rest = BlockBatches(self.blocks, self.size, 1, 0)
        rest.numbers = numbers
        return rest


class BlockIterator(iterators.EpochBatchIterator):
    """fairseq's iterator over batches that are worked out one by one.

    Args:
        dataset: to train on.
        size: blocks of a batch.
        options: of fairseq's iterator.
    """

    def __init__(self, dataset: StreamBlockDataset, size: int, **options: Any) -> None:
        super().__init__(dataset, dataset.collater, [], disable_shuffling=True, **options)
        self.batches = BlockBatches(len(dataset), size, self.num_shards, self.shard_id)

    def __len__(self) -> int:
        return len(self.batches)

    @property
    def first_batch(self) -> Any:
        """The first batch of the stream; fairseq makes an empty one of it for processes that have none."""
        return self.collate_fn([self.dataset[0]])

    def next_epoch_itr(self, shuffle: bool = True, *options: Any, **more: Any) -> Any:
        """Return the iterator of the next epoch, as the base class does.

        Raises:
            ValueError: if the epoch is not to be shuffled.
        """
        if not shuffle:
            raise ValueError(
                f"--curriculum needs epoch {self.next_epoch_idx} in the order of the data, but documents are shuffled "
                f"in every epoch: leave it out"
            )
        return super().next_epoch_itr(shuffle, *options, **more)

    def ordered_batches(self, epoch: int, fix_batches_to_gpus: bool, shuffle: bool) -> BlockBatches:
        """Batches of this process; the order of the epoch is in the stream."""
        return self.batches
