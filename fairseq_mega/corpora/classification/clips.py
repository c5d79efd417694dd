"""Clips of sound: read from WAV files, and written as tensors in the layout of the task speech_commands."""

import io
import wave
from pathlib import Path

import numpy as np
import torch

from fairseq_mega.tasks.speech_commands import FOLDER

RATE = 16_000  # samples per second
FILE_NAMES = {"train": "train", "valid": "val", "test": "test"}


def read_wave(name: str, content: bytes) -> np.ndarray:
    """Return the samples of a 16-bit mono WAV file at 16 kHz, (n,) int16; raises ValueError naming any other file."""
    try:
        with wave.open(io.BytesIO(content)) as clip:
            form = (clip.getnchannels(), clip.getsampwidth(), clip.getframerate())
            data = clip.readframes(clip.getnframes())
    except (wave.Error, EOFError) as error:
        raise ValueError(f"{name} cannot be read as WAV: {error}; get a new copy") from error
    if form != (1, 2, RATE):
        raise ValueError(
            f"{name}: one channel of 16 bits at {RATE} Hz is needed, "
            f"found {form[0]} of {8 * form[1]} bits at {form[2]} Hz; convert it, for example with "
            f"`ffmpeg -i IN.wav -ac 1 -ar {RATE} -c:a pcm_s16le OUT.wav`"
        )
    return np.frombuffer(data[: len(data) // 2 * 2], dtype="<i2")


def save_clips(output: Path, split: str, clips: torch.Tensor, labels: np.ndarray) -> None:
    """Write the scaled clips (n, L) float32 of a split as X (n, L, 1), and their labels (n,) int64 as y."""
    (output / FOLDER).mkdir(parents=True, exist_ok=True)
    torch.save(clips.unsqueeze(-1), output / FOLDER / f"{FILE_NAMES[split]}_X.pt")
    torch.save(torch.from_numpy(labels), output / FOLDER / f"{FILE_NAMES[split]}_y.pt")
