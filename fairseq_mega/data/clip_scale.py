"""Labels, length and scale of the recordings of a training, which a classifier requires to read new recordings."""

import hashlib
from pathlib import Path
from typing import List, Sequence

import numpy as np
import torch

from fairseq_mega.compat.files.loading import load

FILE_NAME = "clips.pt"


class ClipScale:
    """Labels of the classes, and the scale of samples.

    Args:
        labels: names of the classes 0, 1, ...
        offset, deviation: (L,) float64 in units of 16-bit samples, for every position of a clip.
    """

    def __init__(self, labels: Sequence[str], offset: np.ndarray, deviation: np.ndarray) -> None:
        self.labels: List[str] = list(labels)
        self.offset, self.deviation = offset, deviation

    @property
    def length(self) -> int:
        """Number L of samples of a clip."""
        return len(self.offset)

    def described(self, digits: int = 6) -> str:
        """Return one line that identifies the scale; numbers are rounded to be the same on all machines."""
        parts = []
        for name, values in (("offset", self.offset), ("deviation", self.deviation)):
            texts = [f"{value:.{digits}g}" for value in values.tolist()]
            digest = hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]
            parts.append(f"{name} {texts[0] if len(set(texts)) == 1 else f'of each sample, digest {digest}'}")
        return ", ".join(parts)

    def apply(self, samples: np.ndarray) -> np.ndarray:
        """Return the scaled samples (L,) float32 of a clip (L,) in units of 16-bit samples."""
        return ((samples - self.offset) / self.deviation).astype(np.float32)

    def save(self, folder: Path) -> None:
        """Write labels and scale to a folder."""
        content = {"labels": self.labels, "offset": torch.from_numpy(self.offset)}
        with open(folder / FILE_NAME, "wb") as stream:
            torch.save({**content, "deviation": torch.from_numpy(self.deviation)}, stream)

    @classmethod
    def load(cls, folder: Path) -> "ClipScale":
        """Read labels and scale from a folder."""
        content = load(folder / FILE_NAME, "cpu")
        return cls(content["labels"], content["offset"].numpy(), content["deviation"].numpy())
