"""Recordings as samples at 16 kHz; raw Speech Commands, SC10: ten words of one second (Warden, 2018; MEGA, 4.2)."""

import argparse
import io
import re
import wave
from pathlib import Path
from typing import Any, Dict, Iterator, Tuple

import numpy as np
import torch

from fairseq_mega.compat.files.card import RATE as RATE_ENTRY
from fairseq_mega.data.class_folders import FileKind
from fairseq_mega.data.clip_scale import ClipScale
from fairseq_mega.lab.prepare.archives import Archive, obtain, read_tar
from fairseq_mega.lab.prepare.dataset import Dataset, Report, Scored, counted
from fairseq_mega.lab.prepare.layouts import CLIPS as TENSORS
from fairseq_mega.lab.prepare.options import USUAL, archive, option
from fairseq_mega.lab.prepare.progress import follow, print_line
from fairseq_mega.lab.prepare.work_folder import WorkFolder
from fairseq_mega.tasks.speech_commands import FOLDER, SCALINGS

RATE = 16_000  # samples per second
FULL_SCALE = 32_768.0
CONVERT = (
    f"convert it with `ffmpeg -i IN -ac 1 -ar {RATE} -c:a pcm_s16le OUT.wav`; without the library soundfile (extra "
    "speech) only 16-bit WAV is read"
)
ENDINGS = (".aif", ".aifc", ".aiff", ".au", ".caf", ".flac", ".mp3", ".oga", ".ogg", ".opus", ".sph", ".wav", ".wave")
SOUNDS = FileKind("recordings", ENDINGS)
FILE_NAMES = {"train": "train", "valid": "val", "test": "test"}


def read_sound(path: Path) -> np.ndarray:
    """Return the samples (n,) of a sound file in units of 16 bits: float32 by soundfile, int16 where it is missing.

    Raises ValueError that names the file, if it cannot be read, has several channels or another rate.
    """
    try:
        import soundfile
    except (ImportError, OSError):  # OSError: libsndfile is missing
        return read_wave(str(path), path.read_bytes())
    try:
        samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    except (RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"{path} cannot be read as sound ({error}): {CONVERT}") from error
    if samples.shape[1] != 1 or rate != RATE:
        found = f"{samples.shape[1]} at {rate} Hz"
        raise ValueError(f"{path}: one channel at {RATE} Hz is needed, found {found}: {CONVERT}")
    return samples[:, 0] * np.float32(FULL_SCALE)


def read_wave(name: str, content: bytes) -> np.ndarray:
    """Return the samples of a 16-bit mono WAV file at 16 kHz, (n,) int16; raise ValueError for other files."""
    try:
        with wave.open(io.BytesIO(content)) as file:
            found = file.getnchannels(), 8 * file.getsampwidth(), file.getframerate()
            samples, length = file.readframes(file.getnframes()), file.getnframes()
    except (wave.Error, EOFError) as error:
        raise ValueError(f"{name} cannot be read as WAV ({error!r}): {CONVERT}") from error
    if found != (1, 16, RATE) or len(samples) != 2 * length:
        raise ValueError(f"{name}: {length} samples of (channels, bits, rate) {(1, 16, RATE)} are needed: {CONVERT}")
    return np.frombuffer(samples, dtype="<i2")


def fitted(samples: np.ndarray, length: int) -> np.ndarray:
    """Return the first ``length`` samples of a recording (n,), padded with zeros."""
    return np.pad(samples[:length], (0, max(0, length - len(samples))))


def save_clips(output: Path, split: str, clips: torch.Tensor, labels: np.ndarray) -> None:
    """Write the scaled clips (n, L) float32 of a split as X (n, L, 1), and their labels (n,) int64 as y."""
    (output / FOLDER).mkdir(parents=True, exist_ok=True)
    for name, values in (("X", clips.unsqueeze(-1)), ("y", torch.from_numpy(labels))):
        with open(output / FOLDER / f"{FILE_NAMES[split]}_{name}.pt", "wb") as stream:
            torch.save(values, stream)


# --- Speech Commands

ARCHIVE = Archive(
    "http://download.tensorflow.org/data/speech_commands_v0.02.tar.gz",
    {"sha256": "af14739ee7dc311471de98f5f9d2c9191b18aedfe957f4a6ff791c709868ff58"},
)
WORDS = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")
SAMPLES = RATE  # one second
CLIPS = 34_975
EPSILON = 1e-5
_MEMBER = re.compile(rf"({'|'.join(WORDS)})/[^/]+\.wav")

DETAILS = f"""\
24482, 5246 and 5247 clips of {SAMPLES} samples: all {CLIPS} recordings of ten words that have this length.
They are ordered by word and file name and split as scikit-learn does, 70 / 15 / 15 % of every word. The authors' split
differs, because it follows the order of their disk. Download 2.4 GB, result 2.3 GB, 4 GB of memory, about five minutes
on one core. Labels 0 to 9:
{", ".join(WORDS)}.
The samples are divided by 32768 twice, and every time position is standardised with mean and standard deviation
(+ 1e-5) of that position in train. The published code does the same: it divides the result of torchaudio.load, which
is in [-1, 1] already. The 1e-5 then outweighs the deviation: values are near 0.2, with --scaling once near 1."""


def _read(files: Iterator[Tuple[str, bytes]], smoke: bool) -> Tuple[np.ndarray, np.ndarray, int]:
    """Return clips (n, SAMPLES) int16 and labels (n,) in sorted order, and the number of clips of another length.

    Raises ValueError if there are more or fewer clips than published, unless they are toy data.
    """
    clips: Dict[Tuple[int, str], np.ndarray] = {}
    dropped = 0
    for name, content in follow(files, "reading", "files"):
        samples = read_wave(name, content)
        if len(samples) == SAMPLES:
            clips[WORDS.index(name.split("/")[0]), name] = samples
        else:
            dropped += 1
    if len(clips) != CLIPS and not smoke:
        raise ValueError(
            f"expected {CLIPS} clips of {SAMPLES} samples, found {len(clips)}: prepare others as recordings"
        )
    order = sorted(clips)
    samples = np.empty((len(order), SAMPLES), dtype=np.int16)
    for row, key in enumerate(order):
        samples[row] = clips.pop(key)  # frees the memory
    return samples, np.array([label for label, _ in order], dtype=np.int64), dropped


def split_clips(labels: np.ndarray) -> Dict[str, np.ndarray]:
    """Return the indices of the clips in each split, in the order that scikit-learn draws them.

    Train has 70 %, with random state 0; the rest is halved with random state 1; both splits are stratified. Source: the
    published split of S4 (Gu et al., ICLR 2022).
    """
    from sklearn.model_selection import train_test_split as split

    train, rest = split(np.arange(len(labels)), train_size=0.7, random_state=0, stratify=labels)
    valid, test = split(rest, train_size=0.5, random_state=1, stratify=labels[rest])
    return {"train": train, "valid": valid, "test": test}


def statistics_of(samples: np.ndarray, divisor: float) -> Tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation (n - 1) of every time position of (n, length) samples / divisor, float64."""
    size, total, squares = len(samples), np.zeros(samples.shape[1]), np.zeros(samples.shape[1])
    for block in np.array_split(samples, -(-size // 1000)):  # complete float64 copies would not fit into memory
        values = block.astype(np.float64)  # of whole numbers: the sums are exact
        total += values.sum(axis=0)
        squares += (values**2).sum(axis=0)
    mean = total / size
    variance = np.maximum(squares - size * mean**2, 0.0) / max(size - 1, 1)
    return mean / divisor, np.sqrt(variance) / divisor


def make(args: argparse.Namespace, work: WorkFolder) -> Report:
    """Read the clips, split, scale and standardise them, and write tensors."""
    path, inputs = obtain(ARCHIVE, args.archive, work.raw, not args.smoke)
    files = read_tar(path, lambda name: _MEMBER.fullmatch(name) is not None)
    samples, labels, dropped = _read(files, args.smoke)
    print_line(f"{len(labels)} clips of {SAMPLES} samples, {dropped} of another length dropped")
    divisor = FULL_SCALE ** SCALINGS[args.scaling]
    splits = split_clips(labels)
    mean, deviation = statistics_of(samples[splits["train"]], divisor)
    counts: Dict[str, Dict[str, Any]] = {}
    for split, which in splits.items():
        values = torch.empty(len(which), SAMPLES)
        for row, number in enumerate(which.tolist()):
            scaled = (samples[number] / divisor - mean) / (deviation + EPSILON)
            values[row] = torch.from_numpy(scaled.astype(np.float32))
        save_clips(work.output, split, values, labels[which])
        counts[split] = counted((WORDS[label] for label in labels[which]), WORDS)
        print_line(f"{split}: {len(which)} clips")
    ClipScale(WORDS, mean * divisor, (deviation + EPSILON) * divisor).save(work.output / FOLDER)
    notes = [
        f"{dropped} clips of another length than {SAMPLES} samples dropped",
        "files in sorted order: the split differs from the authors' tensors",
        f"samples divided by 32768 {args.scaling}; per position minus mean, by standard deviation (n - 1) + {EPSILON}",
    ]
    return Report(ARCHIVE.url, counts, inputs, notes, card={RATE_ENTRY: str(RATE)})


DATASETS = (
    Dataset(
        "speech-commands",
        DETAILS,
        (
            archive(ARCHIVE.name),
            option(
                "--scaling", choices=SCALINGS, default="twice", help=f"divide samples by 32768 once or twice{USUAL}"
            ),
        ),
        make,
        reads=lambda args: {"any_count": bool(args.smoke)},
        layout=TENSORS,
        task_options={"--scaling": "sc_scaling"},
        scored=Scored(5_247),
    ),
)
