"""Clips of sound: cut to a length, and written as tensors in the layout of the task speech_commands."""

from pathlib import Path

import numpy as np
import torch

from fairseq_mega.tasks.speech_commands import FOLDER

FILE_NAMES = {"train": "train", "valid": "val", "test": "test"}
SILENCE = 2  # range of samples, in units of 16 bits, that holds no sound; floats cut to whole numbers have this range
AS_FLOATS = "32,767 is full scale: multiply floats of -1 to 1 by it before they are saved as whole numbers"
SILENT = f"clips are silent from beginning to end ({AS_FLOATS})"


def is_silent(samples: np.ndarray) -> bool:
    """Return whether the samples of a clip, in units of 16 bits, are the same, or nearly so."""
    return len(samples) > 0 and int(samples.max()) - int(samples.min()) <= SILENCE


def fitted(name: str, samples: np.ndarray, length: int) -> np.ndarray:
    """Return the first ``length`` samples of a recording (n,), padded with zeros.

    Raises:
        ValueError: names the recording if it has no sample, or loses all of its sound.
    """
    if len(samples) == 0:
        raise ValueError(f"{name} contains no sample: get a new copy, or remove it")
    kept = samples[:length]
    if is_silent(kept) and not is_silent(samples):
        raise ValueError(
            f"{name}: its first {length} of {len(samples)} samples are silent, and the others would be cut off: cut "
            f"the silence away, or make the clips longer (--samples of fairseq-mega-prepare recordings)"
        )
    return np.pad(kept, (0, max(0, length - len(samples))))


def save_clips(output: Path, split: str, clips: torch.Tensor, labels: np.ndarray) -> None:
    """Write the scaled clips (n, L) float32 of a split as X (n, L, 1), and their labels (n,) int64 as y."""
    (output / FOLDER).mkdir(parents=True, exist_ok=True)
    for name, values in (("X", clips.unsqueeze(-1)), ("y", torch.from_numpy(labels))):
        with open(output / FOLDER / f"{FILE_NAMES[split]}_{name}.pt", "wb") as stream:  # has the errno of a full disk
            torch.save(values, stream)
