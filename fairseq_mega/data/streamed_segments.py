"""Evaluation of long texts: segments are read group by group, and the model's state is carried."""

import math
from typing import Any, Dict, List, Optional

import numpy as np
from fairseq.data import Dictionary

from .binarised_text import BinarisedText, BlockDataset


class StreamedSegmentDataset(BlockDataset):
    """Segments of a text; each begins with an empty memory and is read in groups of some chunks.

    Every token of the text is the target of exactly one item. A batch holds the same group of some segments. It names
    the segments (``streams``) and the number of their tokens that were read before (``position``), by which the model
    finds their state.

    Args:
        text: lines to evaluate.
        dictionary: dictionary with padding and ``</s>``, which is read before the first token of a segment.
        segments: K, each of at most ceil(tokens / K) tokens; lines stay whole, so there may be more segments.
        group: tokens that are read in one call.
        longest: instead of ``segments``: maximum tokens of a segment, except for a longer single line.
        exact: instead of both: tokens of each segment, which begins anywhere and is read after the token before. Groups
            of all sizes that divide ``exact`` then begin at the same tokens.

    Source: the published code's test protocol for WikiText-103 and enwik8.
    """

    def __init__(
        self,
        text: BinarisedText,
        dictionary: Dictionary,
        segments: Optional[int],
        group: int,
        exact: Optional[int] = None,
        longest: Optional[int] = None,
    ) -> None:
        super().__init__(text, dictionary)
        self.group, self.whole_lines = group, exact is None
        if exact is None:
            most = longest if segments is None else math.ceil(text.tokens / segments)
            assert most is not None, "either segments or longest is required"
            self.segments = text.cut(lambda: most)
        else:
            begins = np.arange(0, text.tokens, exact)
            self.segments = np.stack([begins, np.minimum(begins + exact, text.tokens)], axis=1)
        items = [
            (segment, begin)
            for segment, (first, end) in enumerate(self.segments)
            for begin in range(int(first), int(end), group)
        ]
        self.items = np.array(items, dtype=np.int64)  # (items, 2): segment, tokens of the text before the item
        self.sizes = np.minimum(group, self.segments[self.items[:, 0], 1] - self.items[:, 1])

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Dict[str, Any]:
        segment, begin = self.items[index].tolist()
        first = int(self.segments[segment, 0])
        begins_anew = begin == 0 or (begin == first and self.whole_lines)
        block = self.block(index, begin, begin + int(self.sizes[index]), begins_anew)
        return {**block, "stream": segment, "position": begin - first}

    def collater(self, samples: List[Dict[str, Any]]) -> Dict[str, Any]:
        """Return a batch of the same group of several segments, right padded at the end of a segment."""
        batch = super().collater(samples)
        if batch:
            (position,) = {sample["position"] for sample in samples}
            batch["net_input"].update(streams=[sample["stream"] for sample in samples], position=position)
        return batch

    def batches(self, max_tokens: Optional[int], max_sentences: Optional[int], shards: int = 1) -> List[List[int]]:
        """Return the items of each batch in reading order.

        Args:
            max_tokens: maximum tokens of a batch, which limits the segments of a batch; a batch has at least one.
            max_sentences: maximum segments of a batch.
            shards: number of processes; each reads every ``shards``-th batch, and so whole segments. Processes with
                fewer batches have empty batches at the end.
        """
        lengths = self.segments[:, 1] - self.segments[:, 0]
        side_by_side = max(1, (max_tokens or self.group) // min(self.group, int(lengths.max())))
        side_by_side = min(side_by_side, max_sentences or side_by_side, math.ceil(len(lengths) / shards))
        longest_first = np.argsort(-lengths, kind="stable")
        first_item = np.searchsorted(self.items[:, 0], np.arange(len(lengths)))
        groups = -(-lengths // self.group)
        of_shard: List[List[List[int]]] = [[] for _ in range(shards)]
        for start in range(0, len(lengths), side_by_side):
            some = longest_first[start : start + side_by_side]
            shard = min(of_shard, key=len) if shards > 1 else of_shard[0]
            for group in range(int(groups[some[0]])):
                shard.append([int(first_item[segment]) + group for segment in some if group < groups[segment]])
        length = max(map(len, of_shard))
        padded = [batches + [[]] * (length - len(batches)) for batches in of_shard]
        return [batches[i] for i in range(length) for batches in padded]

    def ordered_indices(self) -> np.ndarray:
        """Return all items in the order of the text."""
        return np.arange(len(self))
