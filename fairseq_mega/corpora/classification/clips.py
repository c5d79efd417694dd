"""Clips of sound, written as tensors in the layout of the task speech_commands."""

from pathlib import Path

import numpy as np
import torch

from fairseq_mega.tasks.speech_commands import FOLDER

FILE_NAMES = {"train": "train", "valid": "val", "test": "test"}


def save_clips(output: Path, split: str, clips: torch.Tensor, labels: np.ndarray) -> None:
    """Write the scaled clips (n, L) float32 of a split as X (n, L, 1), and their labels (n,) int64 as y."""
    (output / FOLDER).mkdir(parents=True, exist_ok=True)
    torch.save(clips.unsqueeze(-1), output / FOLDER / f"{FILE_NAMES[split]}_X.pt")
    torch.save(torch.from_numpy(labels), output / FOLDER / f"{FILE_NAMES[split]}_y.pt")
