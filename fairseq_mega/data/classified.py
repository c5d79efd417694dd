"""Base of the datasets of classification tasks: a class per example, batches that leave no example out."""

from typing import Any, Dict, List, Optional

import numpy as np
import torch
from fairseq.data import data_utils

from .sized import SizedDataset


class ClassifiedDataset(SizedDataset):
    """Examples with a class each.

    Subclasses define :meth:`source` and :meth:`collate_sources`, and set ``sizes`` (n,), the lengths.

    Args:
        labels: (n,) integers.
        sizes: (n,) lengths of the examples.
        order: (n,) the order in which they are put into batches; None: as they come.
    """

    def __init__(self, labels: np.ndarray, sizes: np.ndarray, order: Optional[np.ndarray] = None) -> None:
        self.labels = np.asarray(labels, dtype=np.int64)
        self.sizes = np.asarray(sizes, dtype=np.int64)
        self.order = np.arange(len(self.labels)) if order is None else order

    def source(self, index: int) -> Any:
        """Input of one example."""
        raise NotImplementedError

    def collate_sources(self, sources: List[Any]) -> Dict[str, torch.Tensor]:
        """``net_input`` of a batch."""
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Dict[str, Any]:
        return {"id": int(index), "source": self.source(int(index)), "target": int(self.labels[index])}

    def collater(self, samples: List[Dict[str, Any]]) -> Dict[str, Any]:
        """Batch of examples; nothing for none."""
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
        """The order of the examples; the same in every epoch, fairseq shuffles the batches."""
        return self.order

    def batch_by_size(
        self,
        indices: np.ndarray,
        max_tokens: Optional[int] = None,
        max_sentences: Optional[int] = None,
        required_batch_size_multiple: int = 1,
    ) -> Any:
        """Consecutive batches of all examples: a required multiple would leave the last ones out."""
        return super().batch_by_size(indices, max_tokens, max_sentences, 1)


def shuffled(count: int, seed: int) -> np.ndarray:
    """The seeded permutation of the examples from which consecutive batches are cut, as in the published code."""
    with data_utils.numpy_seed(seed):
        return np.random.permutation(count)


def check_labels(
    labels: np.ndarray, classes: Optional[int], where: str, first: int = 1, option: str = "--sentence-class-num"
) -> None:
    """Raise a ValueError that names file and line if a label is none of ``classes`` (None: any).

    Args:
        labels: (n,) integers.
        classes: number of classes.
        where: name of the file.
        first: number of its first line; 0 for files of arrays, whose items are counted from there.
        option: name of the option with the number of classes.
    """
    wrong = np.flatnonzero((labels < 0) | (labels >= (np.iinfo(np.int64).max if classes is None else classes)))
    if len(wrong):
        place = "line" if first else "item"
        raise ValueError(
            f"{where} {place} {wrong[0] + first}: class {labels[wrong[0]]} does not exist, classes are 0 to "
            f"{'...' if classes is None else classes - 1} ({option} {classes})"
        )
