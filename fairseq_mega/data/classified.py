"""Datasets of classification tasks: one class per example, and every example in a batch."""

from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

import numpy as np
import torch
from fairseq.data import Dictionary, data_utils
from torch import Tensor

from .sized import SizedDataset


class ClassifiedDataset(SizedDataset):
    """Examples with a class each.

    Subclasses define :meth:`source` and :meth:`collate_sources`. Batches are cut from the examples in their ``order``
    (n,), at first that of the data.

    Args:
        labels: (n,) integers.
        sizes: (n,) lengths of the examples.

    Raises:
        ValueError: if the numbers of labels and examples differ.
    """

    def __init__(self, labels: np.ndarray, sizes: np.ndarray) -> None:
        self.labels = np.asarray(labels, dtype=np.int64)
        self.sizes = np.asarray(sizes, dtype=np.int64)
        self.order = np.arange(len(self.labels))
        if len(self.labels) != len(self.sizes):
            raise ValueError(f"{len(self.sizes)} examples and {len(self.labels)} labels do not belong together")

    def source(self, index: int) -> Any:
        """Return the input of one example."""
        raise NotImplementedError

    def collate_sources(self, sources: List[Any]) -> Dict[str, Tensor]:
        """Return ``net_input`` of a batch."""
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Dict[str, Any]:
        return {"id": int(index), "source": self.source(int(index)), "target": int(self.labels[index])}

    def collater(self, samples: List[Dict[str, Any]]) -> Dict[str, Any]:
        """Return a batch of examples, empty for none."""
        if not samples:
            return {}
        return {
            "id": torch.tensor([sample["id"] for sample in samples]),
            "net_input": self.collate_sources([sample["source"] for sample in samples]),
            "target": torch.tensor([sample["target"] for sample in samples]),
            "nsentences": len(samples),
            "ntokens": int(sum(self.sizes[sample["id"]] for sample in samples)),
        }

    def ordered_indices(self) -> np.ndarray:
        """Return the order of the examples, the same in every epoch; fairseq shuffles the batches."""
        return self.order


class ClassifiedTextDataset(ClassifiedDataset):
    """Texts, or pairs of texts to compare, padded on the right.

    Args:
        documents: one or two indexed datasets of token lines, each line with its ``</s>``.
        labels: (n,) integers.
        padding: padding token.
        longest: maximum tokens of a text; a longer text is cut at its end; None: no limit.
        first: token before each text (``<CLS>``), included in the length; None: no token.

    Source: the published code's task lra-text.
    """

    def __init__(
        self,
        documents: Sequence[Any],
        labels: np.ndarray,
        padding: int,
        longest: Optional[int] = None,
        first: Optional[int] = None,
    ) -> None:
        self.documents, self.padding, self.longest, self.first = list(documents), padding, longest, first
        lengths = sum(np.minimum(texts.sizes + (first is not None), longest or np.inf) for texts in documents)
        super().__init__(labels, np.asarray(lengths))

    def source(self, index: int) -> List[Tensor]:
        """Return the tokens of each document of an example."""
        first = torch.tensor([] if self.first is None else [self.first], dtype=torch.long)
        return [torch.cat([first, texts[index].long()])[: self.longest] for texts in self.documents]

    def collate_sources(self, sources: List[List[Tensor]]) -> Dict[str, Tensor]:
        """Return ``src_tokens`` (B, L) and ``src_lengths`` (B,), and ``src1_...`` for second documents."""
        batch = {}
        for name, texts in zip(("src", "src1"), zip(*sources)):
            batch[f"{name}_tokens"] = data_utils.collate_tokens(list(texts), self.padding)
            batch[f"{name}_lengths"] = torch.tensor([len(tokens) for tokens in texts])
        return batch


class NumberSequenceDataset(ClassifiedDataset):
    """Sequences of numbers, all of one length: images as rows of pixels, and raw speech.

    Args:
        sequences: rows (n, L) of uint8 pixels or float samples.
        labels: (n,) integers.
        normalization: mean and standard deviation of pixels in [0, 1], for ``(x / 255 - mean) / std``; None: no
            normalization.
    """

    def __init__(self, sequences: Any, labels: np.ndarray, normalization: Optional[Sequence[float]] = None) -> None:
        super().__init__(labels, np.full(*sequences.shape))
        self.sequences, self.normalization = sequences, normalization

    def source(self, index: int) -> np.ndarray:
        """Return the numbers (L,) of an example, not normalised."""
        return np.asarray(self.sequences[index])

    def collate_sources(self, sources: List[np.ndarray]) -> Dict[str, Tensor]:
        """Return ``src_tokens`` (B, L) float32 and ``src_lengths`` (B,)."""
        numbers = torch.from_numpy(np.stack(sources)).float()
        if self.normalization is not None:
            mean, deviation = self.normalization
            numbers = (numbers / 255 - mean) / deviation
        return {"src_tokens": numbers, "src_lengths": torch.full((len(sources),), numbers.size(1))}


def shuffled(count: int, seed: int) -> np.ndarray:
    """Return a seeded permutation of the examples, from which consecutive batches are cut as in the published code."""
    with data_utils.numpy_seed(seed):
        return np.random.permutation(count)


def read_labels(path: Path) -> np.ndarray:
    """Read labels (n,) int64 from a file with one integer per line."""
    with open(path, encoding="utf-8") as file:
        return np.array([int(line) for line in file], dtype=np.int64)


def read_classes(lines: Any, dictionary: Dictionary, where: str) -> np.ndarray:
    """Return the classes (n,) of binarised label lines: ranks in the dictionary, 0 for the most frequent label.

    Args:
        lines: indexed dataset; each line has a label and ``</s>``.
        dictionary: dictionary of the labels.
        where: name of the file, for messages.

    Raises:
        ValueError: if a line has no label, several labels, or a label that is not in the dictionary.
    """
    classes = np.empty(len(lines), dtype=np.int64)
    for number in range(len(lines)):
        tokens = [token for token in lines[number].tolist() if token != dictionary.eos()]
        if len(tokens) != 1 or tokens[0] < dictionary.nspecial:
            raise ValueError(f"{where} line {number + 1} is not one label of dict.txt: {dictionary.string(tokens)!r}")
        classes[number] = tokens[0] - dictionary.nspecial
    return classes
