"""Binarised texts, or pairs of texts, with a class each."""

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
        padding: padding token.
        longest: maximum tokens of a text; a longer text is cut at its end; None: no limit.
        first: token before each text (``<CLS>``), included in the length; None: no token.
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
        """Return the tokens of each document of an example."""
        found = []
        for texts in self.documents:
            tokens = texts[index].long()
            if self.first is not None:
                tokens = torch.cat([tokens.new_tensor([self.first]), tokens])
            found.append(tokens[: self.longest])
        return found

    def collate_sources(self, sources: List[List[Tensor]]) -> Dict[str, Tensor]:
        """Return ``src_tokens`` (B, L) and ``src_lengths`` (B,), and ``src1_...`` for second documents."""
        batch = {}
        for name, texts in zip(("src", "src1"), zip(*sources)):
            batch[f"{name}_tokens"] = data_utils.collate_tokens(list(texts), self.padding)
            batch[f"{name}_lengths"] = torch.tensor([len(tokens) for tokens in texts])
        return batch


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
        if len(tokens) != 1:
            raise ValueError(f"{where} line {number + 1} holds {len(tokens)} labels: give one label per line")
        if tokens[0] < dictionary.nspecial:
            raise ValueError(
                f"{where} line {number + 1}: the label is not in the label dictionary (dict.txt): binarise the labels "
                f"with this dictionary"
            )
        classes[number] = tokens[0] - dictionary.nspecial
    return classes
