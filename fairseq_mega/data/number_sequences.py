"""Sequences of real numbers with a class each: images as rows of pixels, and raw speech."""

from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np
import torch

from .classified import ClassifiedDataset


class NumberSequenceDataset(ClassifiedDataset):
    """Sequences of numbers, all of one length.

    Args:
        sequences: rows (n, L) of uint8 pixels or float samples, for instance a
            :class:`fairseq_mega.data.pixel_files.PixelFile`.
        labels: (n,) integers.
        normalization: mean and standard deviation of pixels in [0, 1], for ``(x / 255 - mean) / std``; None: no
            normalization.
        order: see :class:`fairseq_mega.data.classified.ClassifiedDataset`.

    Raises:
        ValueError: if the numbers of sequences and labels differ.
    """

    def __init__(
        self,
        sequences: Any,
        labels: np.ndarray,
        normalization: Optional[Sequence[float]] = None,
        order: Optional[np.ndarray] = None,
    ) -> None:
        count, length = sequences.shape
        if count != len(labels):
            raise ValueError(f"{count} sequences, but {len(labels)} labels")
        super().__init__(labels, np.full(count, length), order)
        self.sequences = sequences
        self.normalization = None if normalization is None else tuple(normalization)

    def source(self, index: int) -> np.ndarray:
        """Return the numbers (L,) of an example, not normalised."""
        return np.asarray(self.sequences[index])

    def collate_sources(self, sources: List[np.ndarray]) -> Dict[str, torch.Tensor]:
        """Return ``src_tokens`` (B, L) float32 and ``src_lengths`` (B,)."""
        numbers = torch.from_numpy(np.stack(sources)).float()
        if self.normalization is not None:
            mean, deviation = self.normalization
            numbers = (numbers / 255 - mean) / deviation
        return {"src_tokens": numbers, "src_lengths": torch.full((len(sources),), numbers.size(1))}


def check_normalization(option: str, values: Sequence[float]) -> Tuple[float, float]:
    """Return mean and standard deviation.

    Raises:
        ValueError: unless the values are two numbers, the second above zero.
    """
    if len(values) != 2 or values[1] <= 0:
        shown = " ".join(str(value) for value in values)
        raise ValueError(f"{option} {shown}: give a mean and a standard deviation above 0, for example 0.48 0.24")
    return float(values[0]), float(values[1])
