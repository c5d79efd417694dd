"""Base of the datasets of classification tasks: one class per example, and every example in a batch."""

import logging
from typing import Any, Dict, List, Optional

import numpy as np
import torch
from fairseq.data import data_utils

from .sized import SizedDataset

logger = logging.getLogger(__name__)


class ClassifiedDataset(SizedDataset):
    """Examples with a class each.

    Subclasses define :meth:`source` and :meth:`collate_sources`.

    Args:
        labels: (n,) integers.
        sizes: (n,) lengths of the examples.
        order: (n,) order of the examples in batches; None: the order of the data.
    """

    def __init__(self, labels: np.ndarray, sizes: np.ndarray, order: Optional[np.ndarray] = None) -> None:
        self.labels = np.asarray(labels, dtype=np.int64)
        self.sizes = np.asarray(sizes, dtype=np.int64)
        self.order = np.arange(len(self.labels)) if order is None else order

    def source(self, index: int) -> Any:
        """Return the input of one example."""
        raise NotImplementedError

    def collate_sources(self, sources: List[Any]) -> Dict[str, torch.Tensor]:
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

    def batch_by_size(
        self,
        indices: np.ndarray,
        max_tokens: Optional[int] = None,
        max_sentences: Optional[int] = None,
        required_batch_size_multiple: int = 1,
    ) -> Any:
        """Return consecutive batches of all examples; a required multiple would exclude the last examples."""
        return super().batch_by_size(indices, max_tokens, max_sentences, 1)


def shuffled(count: int, seed: int) -> np.ndarray:
    """Return a seeded permutation of the examples, from which consecutive batches are cut as in the published code."""
    with data_utils.numpy_seed(seed):
        return np.random.permutation(count)


def check_labels(
    labels: np.ndarray, classes: Optional[int], where: str, first: int = 1, option: str = "--sentence-class-num"
) -> None:
    """Raise a ValueError that names file and line if a label is out of range; warn of labels that are all the same.

    Args:
        labels: (n,) integers.
        classes: number of classes; None: no limit.
        where: name of the file.
        first: number of the first line; 0 for files of arrays, whose items are counted from 0.
        option: name of the option with the number of classes.
    """
    wrong = np.flatnonzero((labels < 0) | (labels >= (np.iinfo(np.int64).max if classes is None else classes)))
    if len(wrong):
        place = "line" if first else "item"
        needed = int(labels.max()) + 1
        more = classes is not None and needed > classes
        remedy = f": a training on these labels requires {option} {needed}" if more else ""
        raise ValueError(
            f"{where} {place} {wrong[0] + first}: class {labels[wrong[0]]} does not exist, classes are 0 to "
            f"{'...' if classes is None else classes - 1} ({option} {classes}){remedy}"
        )
    if len(labels) > 1 and (labels == labels[0]).all():
        logger.warning(f"{where}: all {len(labels):,} examples have class {labels[0]}, so any accuracy means little")
