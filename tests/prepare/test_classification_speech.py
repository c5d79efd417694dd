"""fairseq-mega-prepare for Speech Commands: which clips are taken, their split, their scale."""

import hashlib
import io
import sys
import tarfile
import wave
from collections import Counter
from pathlib import Path
from typing import Dict, List, Tuple

import numpy as np
import pytest
import torch

from fairseq_mega.lab.prepare.classification import speech_commands
from fairseq_mega.lab.prepare.classification.speech_commands import WORDS, split_clips, statistics_of
from tests.support.prepare_runs import prepare, refusal, source_of

CLIPS = 7  # of every word


def wav(samples: np.ndarray, channels: int = 1, width: int = 2, rate: int = 16000) -> bytes:
    stream = io.BytesIO()
    with wave.open(stream, "wb") as clip:
        clip.setnchannels(channels)
        clip.setsampwidth(width)
        clip.setframerate(rate)
        clip.writeframes(samples.astype("<i2").tobytes())
    return stream.getvalue()


def recordings() -> Dict[str, bytes]:
    """Names in no order; the first sample of clip n of word w is 100 w + n; one clip of each word is too short."""
    draw = np.random.default_rng(1)
    found = {}
    for number, word in reversed(list(enumerate(WORDS))):
        for clip in reversed(range(CLIPS)):
            samples = draw.integers(-3000, 3000, 16000)
            samples[0] = 100 * number + clip
            found[f"{word}/{clip}_nohash_0.wav"] = wav(samples)
        found[f"{word}/short.wav"] = wav(np.zeros(15999))
    return {**found, "cat/0_nohash_0.wav": wav(np.zeros(16000)), "_background_noise_/x.wav": b"no"}


def write_folder(root: Path) -> Path:
    for name, content in recordings().items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return root


def tensors(out: Path, split: str) -> Tuple[torch.Tensor, torch.Tensor]:
    folder = out / "processed_data" / "raw"
    return torch.load(folder / f"{split}_X.pt"), torch.load(folder / f"{split}_y.pt")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("wavs"))


@pytest.fixture(scope="module")
def made(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("out")
    prepare("speech-commands", "--out", out, "--dir", folder, "--any-count", "--scaling", "once").succeeded()
    return out


def raw_in_order(folder: Path) -> np.ndarray:
    clips: List[np.ndarray] = []
    for word in WORDS:
        for path in sorted((folder / word).iterdir()):
            with wave.open(str(path)) as clip:
                samples = np.frombuffer(clip.readframes(clip.getnframes()), dtype="<i2")
            if len(samples) == 16000:
                clips.append(samples)
    return np.stack(clips)


def test_the_split_is_the_stratified_one_of_scikit_learn() -> None:
    from sklearn.model_selection import train_test_split

    labels = np.repeat(np.arange(10), 30)
    first, rest = train_test_split(np.arange(300), train_size=0.7, random_state=0, stratify=labels)
    second, third = train_test_split(rest, train_size=0.5, random_state=1, stratify=labels[rest])
    found = split_clips(labels)
    assert [found[split].tolist() for split in ("train", "valid", "test")] == [
        first.tolist(),
        second.tolist(),
        third.tolist(),
    ]
    assert Counter(labels[found["train"]]) == dict.fromkeys(range(10), 21)


def test_the_sizes_of_the_split_are_the_published_ones() -> None:
    sizes = {split: len(numbers) for split, numbers in split_clips(np.arange(34975) % 10).items()}
    assert sizes == {"train": 24482, "valid": 5246, "test": 5247}


def test_clips_are_standardised_at_every_position(made: Path, folder: Path) -> None:
    raw = raw_in_order(folder).astype(np.float64)
    labels = np.repeat(np.arange(10), CLIPS)
    order = split_clips(labels)
    scaled = raw / 32768
    mean = scaled[order["train"]].mean(axis=0)
    deviation = scaled[order["train"]].std(axis=0, ddof=1)
    for split, name in (("train", "train"), ("valid", "val"), ("test", "test")):
        x, y = tensors(made, name)
        assert x.dtype == torch.float32 and y.dtype == torch.int64 and x.shape == (len(order[split]), 16000, 1)
        wanted = (scaled[order[split]] - mean) / (deviation + 1e-5)
        np.testing.assert_allclose(x[:, :, 0].numpy(), wanted, rtol=2e-6, atol=2e-6)
        assert y.tolist() == labels[order[split]].tolist()
    x, _ = tensors(made, "train")
    assert abs(float(x.std()) - 1) < 0.05
    source = source_of(made)
    assert source["splits"]["train"]["examples"] == 49 and set(source["splits"]["train"]["labels"]) == set(WORDS)
    assert any("10 clips of another length" in note for note in source["notes"])


def test_scaling_twice_makes_the_epsilon_count(folder: Path, made: Path, tmp_path: Path) -> None:
    options = ("--dir", folder, "--any-count", "--limit", 40)  # the default
    prepare("speech-commands", "--out", tmp_path, *options).succeeded()
    x, y = tensors(tmp_path, "train")
    assert len(x) == len(y) == 40
    # uniform in +-3000: (3000 / 3**0.5) / 32768**2 = 1.6e-6, beside 1e-5
    assert 0.1 < float(x.std()) < 0.17
    assert source_of(tmp_path)["settings"]["scaling"] == "twice" and source_of(made)["settings"]["scaling"] == "once"


def test_the_default_is_the_published_arithmetic(folder: Path, tmp_path: Path) -> None:
    """Loaded as [-1, 1], divided by 2**15 again, standardised per position with 1e-5 (the published float32 steps)."""
    prepare("speech-commands", "--out", tmp_path, "--dir", folder, "--any-count").succeeded()
    order = split_clips(np.repeat(np.arange(10), CLIPS))
    loaded = torch.from_numpy(raw_in_order(folder).astype(np.float32) / 32768)
    samples = loaded / 2**15
    train = samples[torch.from_numpy(order["train"])]
    wanted = (samples[torch.from_numpy(order["test"])] - train.mean(0)) / (train.std(0) + 1e-5)
    torch.testing.assert_close(tensors(tmp_path, "test")[0][:, :, 0], wanted, rtol=1e-4, atol=1e-6)


def test_data_of_the_other_scale_are_not_overwritten(folder: Path, made: Path) -> None:
    """Also where they were made before the default was the published one."""
    message = refusal("speech-commands", "--out", made, "--dir", folder, "--any-count")
    assert 'scaling was "once" and is "twice" now' in message and "give another folder" in message


def test_statistics_are_those_of_numpy_in_blocks() -> None:
    samples = np.random.default_rng(2).integers(-32768, 32768, (2500, 7)).astype(np.int16)
    mean, deviation = statistics_of(samples, 32768.0)
    values = samples / 32768.0
    np.testing.assert_allclose(mean, values.mean(axis=0), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(deviation, values.std(axis=0, ddof=1), rtol=1e-10)
    constant, none = statistics_of(np.full((5, 3), -7, np.int16), 1.0)
    assert constant.tolist() == [-7.0] * 3 and none.tolist() == [0.0] * 3


def test_the_archive_gives_what_the_folder_gives(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "speech_commands_v0.02.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, content in recordings().items():
            member = tarfile.TarInfo(f"./{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    options = ("speech-commands", "--out", tmp_path / "out", "--archive", path, "--any-count", "--scaling", "once")
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    message = refusal(*options)
    assert "expected SHA256 af14739e" in message and f"found {found}" in message
    digests = {"sha256": found}
    monkeypatch.setattr(speech_commands, "ARCHIVE", speech_commands.ARCHIVE._replace(digests=digests))
    prepare(*options).succeeded()
    for split in ("train", "val", "test"):
        assert all(map(torch.equal, tensors(tmp_path / "out", split), tensors(made, split)))


def test_another_number_of_clips_is_refused(folder: Path, tmp_path: Path) -> None:
    message = refusal("speech-commands", "--out", tmp_path / "out", "--dir", folder)
    assert "expected 34975 clips of 16000 samples, found 70" in message and "--any-count" in message
    assert not (tmp_path / "out").exists()


def test_a_missing_scikit_learn_is_said_at_once(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.model_selection", None)
    message = refusal("speech-commands", "--out", tmp_path / "out", "--dir", folder, "--any-count")
    assert "pip install scikit-learn" in message
