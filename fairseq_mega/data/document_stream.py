"""Corpus of JSON lines as one stream of tokens, shuffled in every epoch and read from disk span by span."""

from pathlib import Path
from typing import List, Optional, Sequence

import numpy as np
import torch
from torch import Tensor

from .json_lines import Source, read_texts
from .subword_vocabulary import SubwordVocabulary
from .token_index import load_or_count


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
