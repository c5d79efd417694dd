"""Read sound files as samples of one channel at 16 kHz, cut to a length, and write them as the tensors of the task."""

import io
import wave
from pathlib import Path

import numpy as np
import torch

from fairseq_mega.data.class_folders import FileKind
from fairseq_mega.tasks.speech_commands import FOLDER

RATE = 16_000  # samples per second
FULL_SCALE = 32_768.0
LOUDEST = 4.0  # for floats, whose full scale is 1
CONVERT = f"`ffmpeg -i IN -ac 1 -ar {RATE} -c:a pcm_s16le OUT.wav`"
INSTALL = "other files need the library soundfile: `bash scripts/setup.sh --extras speech`, or pip install soundfile"
ENDINGS = (".aif", ".aifc", ".aiff", ".au", ".caf", ".flac", ".mp3", ".oga", ".ogg", ".opus", ".sph", ".wav", ".wave")
SOUNDS = FileKind("recordings", ENDINGS)
FILE_NAMES = {"train": "train", "valid": "val", "test": "test"}


def read_sound(path: Path) -> np.ndarray:
    """Return the samples (n,) of a sound file in units of 16 bits: float32 by soundfile, int16 where it is missing.

    Raises:
        ValueError: names the file, if it cannot be read, has several channels, another rate, or samples without a known
            range.
    """
    try:
        import soundfile
    except (ImportError, OSError) as missing:  # OSError: libsndfile is missing
        try:
            return read_wave(str(path), path.read_bytes())
        except ValueError as error:
            raise ValueError(f"{error} ({INSTALL})") from missing
    try:
        samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    except (RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"{path} cannot be read as sound ({error}): replace it, or convert it: {CONVERT}") from error
    if samples.shape[1] != 1 or rate != RATE:
        raise ValueError(
            f"{path}: one channel at {RATE} Hz is needed, found {samples.shape[1]} at {rate} Hz: convert it: {CONVERT}"
        )
    loudest = np.abs(samples).max(initial=0.0)
    if not loudest <= LOUDEST:  # NaN, too
        raise ValueError(f"{path} has samples of up to {loudest:g}, where 1 is full scale: their range is not known")
    return samples[:, 0] * np.float32(FULL_SCALE)


def read_wave(name: str, content: bytes) -> np.ndarray:
    """Return the samples of a 16-bit mono WAV file at 16 kHz, (n,) int16; raise ValueError for other files."""
    try:
        with wave.open(io.BytesIO(content)) as file:
            found = file.getnchannels(), 8 * file.getsampwidth(), file.getframerate()
            samples = file.readframes(file.getnframes())
            if len(samples) != file.getnframes() * found[0] * file.getsampwidth():
                raise EOFError("it is cut off")
    except (wave.Error, EOFError) as error:
        raise ValueError(f"{name} cannot be read as WAV ({error!r}): convert it: {CONVERT}") from error
    if found != (1, 16, RATE):
        raise ValueError(f"{name}: (channels, bits, rate) {(1, 16, RATE)} are needed, found {found}: {CONVERT}")
    return np.frombuffer(samples, dtype="<i2")


def fitted(samples: np.ndarray, length: int) -> np.ndarray:
    """Return the first ``length`` samples of a recording (n,), padded with zeros."""
    return np.pad(samples[:length], (0, max(0, length - len(samples))))


def save_clips(output: Path, split: str, clips: torch.Tensor, labels: np.ndarray) -> None:
    """Write the scaled clips (n, L) float32 of a split as X (n, L, 1), and their labels (n,) int64 as y."""
    (output / FOLDER).mkdir(parents=True, exist_ok=True)
    for name, values in (("X", clips.unsqueeze(-1)), ("y", torch.from_numpy(labels))):
        with open(output / FOLDER / f"{FILE_NAMES[split]}_{name}.pt", "wb") as stream:  # has the errno of a full disk
            torch.save(values, stream)
