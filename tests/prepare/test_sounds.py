"""Sound: files that are read and refused; Speech Commands: its clips, split and scale."""

import io
import struct
import sys
from pathlib import Path
from typing import Dict, Tuple

import numpy as np
import pytest
import torch

from fairseq_mega.lab.prepare.classification import sounds
from fairseq_mega.lab.prepare.classification.sounds import WORDS, read_sound, read_wave, split_clips
from fairseq_mega.lab.prepare.download import sha256_of
from tests.support.prepare_runs import prepare, refusal, source_of, write_archive

TONE = np.round(9000 * np.sin(np.arange(4000) * 0.05)).astype(np.int16)
PCM = TONE.tobytes()
FLOAT = 3


def riff(data: bytes, coding: int = 1, bits: int = 16, channels: int = 1, rate: int = 16000) -> bytes:
    """A WAV file."""
    frame = channels * bits // 8
    form = struct.pack("<HHIIHH", coding, channels, rate, rate * frame, frame, bits)
    content = b"WAVEfmt " + struct.pack("<I", len(form)) + form + b"data" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", len(content)) + content


def by_library(form: str, subtype: str) -> bytes:
    soundfile = pytest.importorskip("soundfile", reason="soundfile is not installed (extra speech)")
    stream = io.BytesIO()
    soundfile.write(stream, TONE / 32768 if subtype == "FLOAT" else TONE, 16000, format=form, subtype=subtype)
    return stream.getvalue()


READ: Dict[str, Tuple[str, str, float]] = {  # file, subtype, and the largest difference to the tone
    "WAV": ("x.wav", "PCM_16", 0),
    "WAV of floats": ("x.wav", "FLOAT", 0),
    "FLAC": ("x.flac", "PCM_16", 0),
    "MP3": ("x.mp3", "MPEG_LAYER_III", 2000),
}


@pytest.mark.parametrize("name", READ)
def test_what_is_read(name: str, tmp_path: Path) -> None:
    file, subtype, most = READ[name]
    (tmp_path / file).write_bytes(by_library(file[2:].upper(), subtype))
    samples = read_sound(tmp_path / file)
    assert samples.dtype == np.float32 and len(samples) == len(TONE)
    assert np.abs(samples - TONE).max() <= most


REFUSED: Dict[str, Tuple[bytes, str]] = {
    "two channels": (riff(PCM, channels=2), "found 2 at 16000 Hz"),
    "another rate": (riff(PCM, rate=44100), "found 1 at 44100 Hz"),
    "a page": (b"<!DOCTYPE html>", "cannot be read as sound"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str, tmp_path: Path) -> None:
    pytest.importorskip("soundfile", reason="soundfile is not installed (extra speech)")
    content, message = REFUSED[name]
    (tmp_path / "x.wav").write_bytes(content)
    with pytest.raises(ValueError, match=rf"(?s)/x\.wav.*{message}"):
        read_sound(tmp_path / "x.wav")


def test_16_bit_wav_is_read_as_it_is_without_the_library_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole numbers of 16 bits, bit for bit; nothing else, as Speech Commands hold nothing else."""
    monkeypatch.setitem(sys.modules, "soundfile", None)
    (tmp_path / "x.wav").write_bytes(riff(PCM))
    found = read_sound(tmp_path / "x.wav")
    assert found.dtype == np.int16 and found.tobytes() == PCM
    for content in (riff(PCM)[:-1], riff(PCM, FLOAT, 32), riff(PCM, bits=24), riff(PCM, rate=8000), b"fLaC\0\0\0", b""):
        with pytest.raises(ValueError, match="^x"):
            read_wave("x", content)


# --- Speech Commands

CLIPS = 7  # of every word


def recordings() -> Dict[str, bytes]:
    """Names in no order; one clip of each word is too short."""
    draw = np.random.default_rng(1)
    found = {}
    for word in reversed(WORDS):
        for clip in reversed(range(CLIPS)):
            found[f"{word}/{clip}_nohash_0.wav"] = riff(draw.integers(-3000, 3000, 16000).astype("<i2").tobytes())
        found[f"{word}/short.wav"] = riff(bytes(2 * 15999))
    return {**found, "cat/0_nohash_0.wav": riff(bytes(2 * 16000)), "_background_noise_/x.wav": b"no"}


def tensors(out: Path, split: str) -> Tuple[torch.Tensor, torch.Tensor]:
    folder = out / "processed_data" / "raw"
    return torch.load(folder / f"{split}_X.pt"), torch.load(folder / f"{split}_y.pt")


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("clips") / "speech_commands_v0.02.tar.gz"
    return write_archive(path, {f"./{name}": content for name, content in recordings().items()})


def raw_in_order() -> np.ndarray:
    names = [f"{word}/{clip}_nohash_0.wav" for word in WORDS for clip in range(CLIPS)]
    found = recordings()
    return np.stack([np.frombuffer(found[name][44:], dtype="<i2") for name in names])


def test_the_split_is_the_stratified_one_of_scikit_learn() -> None:
    from sklearn.model_selection import train_test_split

    labels = np.arange(34975) % 10
    first, rest = train_test_split(np.arange(34975), train_size=0.7, random_state=0, stratify=labels)
    second, third = train_test_split(rest, train_size=0.5, random_state=1, stratify=labels[rest])
    found = split_clips(labels)
    assert all(map(np.array_equal, found.values(), (first, second, third)))
    assert [len(found[split]) for split in ("train", "valid", "test")] == [24482, 5246, 5247]


@pytest.mark.parametrize("scaling", ["twice", "once"])
def test_clips_have_the_published_scale(
    scaling: str, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loaded as [-1, 1], divided by 2**15 again, standardised per position with 1e-5 (the published float32 steps)."""
    monkeypatch.setattr(sounds, "CLIPS", len(WORDS) * CLIPS)
    monkeypatch.setattr(sounds, "ARCHIVE", sounds.ARCHIVE._replace(digests={"sha256": sha256_of(archive)}))
    options = () if scaling == "twice" else ("--scaling", scaling)
    prepare("speech-commands", "--out", tmp_path, "--archive", archive, *options).succeeded()
    labels = np.repeat(np.arange(10), CLIPS)
    order = split_clips(labels)
    loaded = torch.from_numpy(raw_in_order().astype(np.float64) / 32768)
    samples = loaded / 2**15 if scaling == "twice" else loaded
    train = samples[torch.from_numpy(order["train"])]
    for split, name in (("train", "train"), ("valid", "val"), ("test", "test")):
        wanted = (samples[torch.from_numpy(order[split])] - train.mean(0)) / (train.std(0) + 1e-5)
        x, y = tensors(tmp_path, name)
        torch.testing.assert_close(x[:, :, 0], wanted.float(), rtol=2e-6, atol=2e-6)
        assert y.tolist() == labels[order[split]].tolist()
    source = source_of(tmp_path)
    assert source["settings"]["scaling"] == scaling and any("10 clips of another length" in n for n in source["notes"])


def test_other_clips_are_refused(archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("speech-commands", "--out", tmp_path / "out", "--archive", archive)
    message = refusal(*options)
    assert "expected SHA256 af14739e" in message and f"found {sha256_of(archive)}" in message
    monkeypatch.setattr(sounds, "ARCHIVE", sounds.ARCHIVE._replace(digests={"sha256": sha256_of(archive)}))
    assert "expected 34975 clips of 16000 samples, found 70" in refusal(*options)
