"""Binarised texts, or pairs of them, with a class each."""

from typing import Any, Dict, List, Optional, Sequence

import numpy as np
import torch
from fairseq.data import Dictionary, data_utils
from torch import Tensor

from .classified import ClassifiedDataset


class ClassifiedTextDataset(ClassifiedDataset):
    """Texts, or pairs of texts to compare, padded on the right.

    Args:
        documents: one or two indexed datasets of token lines, each line with its ``</s>``.
        labels: (n,) integers.
        padding: token that pads.
        longest: tokens that are kept of a text, from its beginning; None: all.
        first: token to put in front of each text (``<CLS>``), which counts; None: nothing.
        order: see :class:`fairseq_mega.data.classified.ClassifiedDataset`.

    Source: the published code's task lra-text.
    """

    def __init__(
        self,
        documents: Sequence[Any],
        labels: np.ndarray,
        padding: int,
        longest: Optional[int] = None,
        first: Optional[int] = None,
        order: Optional[np.ndarray] = None,
    ) -> None:
        lengths = np.stack([np.asarray(texts.sizes, dtype=np.int64) for texts in documents])
        lengths = lengths + (first is not None)
        self.cut = 0 if longest is None else int((lengths > longest).sum())
        if longest is not None:
            lengths = np.minimum(lengths, longest)
        super().__init__(labels, lengths.sum(axis=0), order)
        self.documents, self.padding, self.longest, self.first = list(documents), padding, longest, first

    def source(self, index: int) -> List[Tensor]:
        """Tokens of each document of an example."""
        found = []
        for texts in self.documents:
            tokens = texts[index].long()
            if self.first is not None:
                tokens = torch.cat([tokens.new_tensor([self.first]), tokens])
            found.append(tokens[: self.longest])
        return found

    def collate_sources(self, sources: List[List[Tensor]]) -> Dict[str, Tensor]:
        """``src_tokens`` (B, L) and ``src_lengths`` (B,); of second documents ``src1_tokens`` and ``src1_lengths``."""
        batch = {}
        for name, texts in zip(("src", "src1"), zip(*sources)):
            batch[f"{name}_tokens"] = data_utils.collate_tokens(list(texts), self.padding)
            batch[f"{name}_lengths"] = torch.tensor([len(tokens) for tokens in texts])
        return batch


def read_classes(lines: Any, dictionary: Dictionary, where: str) -> np.ndarray:
    """Classes (n,) of binarised label lines: the rank of a label in its dictionary, the most frequent one 0.

    Args:
        lines: indexed dataset, a label and ``</s>`` each.
        dictionary: of the labels.
        where: name of the file, for messages.

    Raises:
        ValueError: naming file and line, if a line holds no or several labels, or one that the dictionary lacks.
    """
    classes = np.empty(len(lines), dtype=np.int64)
    for number in range(len(lines)):
        tokens = [token for token in lines[number].tolist() if token != dictionary.eos()]
        if len(tokens) != 1:
            raise ValueError(f"{where} line {number + 1} holds {len(tokens)} labels: one per line is needed")
        if tokens[0] < dictionary.nspecial:
            raise ValueError(f"{where} line {number + 1}: this label is not in the label dictionary (dict.txt)")
        classes[number] = tokens[0] - dictionary.nspecial
    return classes
