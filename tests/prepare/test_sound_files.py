"""Files of sound: what soundfile reads, what is refused, 16-bit WAV without it, and recordings that are omitted."""

import io
import struct
import sys
import wave
from pathlib import Path
from typing import Dict, List, Tuple

import numpy as np
import pytest

from fairseq_mega.lab.prepare.classification.sound_files import read_sound, read_wave
from tests.support.prepare_runs import prepare, refusal, source_of

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
    "WAV of 8 bits": ("x.wav", "PCM_U8", 256),
    "WAV of 24 bits": ("x.wav", "PCM_24", 0),
    "WAV of 32 bits": ("x.wav", "PCM_32", 0),
    "WAV of floats": ("x.wav", "FLOAT", 0),
    "WAV, mu-law": ("x.wav", "ULAW", 300),
    "FLAC": ("x.flac", "PCM_16", 0),
    "AIFF": ("x.aiff", "PCM_16", 0),
    "SPHERE": ("x.sph", "PCM_16", 0),
    "Ogg": ("x.ogg", "VORBIS", 2000),
    "MP3": ("x.mp3", "MPEG_LAYER_III", 2000),
}


@pytest.mark.parametrize("name", READ)
def test_what_is_read(name: str, tmp_path: Path) -> None:
    file, subtype, most = READ[name]
    form = {"sph": "NIST"}.get(file[2:], file[2:].upper())
    (tmp_path / file).write_bytes(by_library(form, subtype))
    samples = read_sound(tmp_path / file)
    assert samples.dtype == np.float32 and len(samples) == len(TONE)
    assert np.abs(samples - TONE).max() <= most


REFUSED: Dict[str, Tuple[bytes, str]] = {
    "floats of another range": (riff(TONE.astype("<f4").tobytes(), FLOAT, 32), "of up to 9000.*not known"),
    "no numbers": (riff(np.full(9, np.nan, "<f4").tobytes(), FLOAT, 32), "of up to nan"),
    "two channels": (riff(PCM, channels=2), "found 2 at 16000 Hz.*ffmpeg"),
    "another rate": (riff(PCM, rate=44100), "found 1 at 44100 Hz.*ffmpeg"),
    "a coding that nobody knows": (riff(PCM, 0x1234), "cannot be read as sound"),
    "M4A": (b"\0\0\0\x20ftypM4A " + bytes(99), "cannot be read as sound.*ffmpeg"),
    "a page": (b"<!DOCTYPE html>", "cannot be read as sound"),
    "nothing": (b"", "cannot be read as sound"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str, tmp_path: Path) -> None:
    pytest.importorskip("soundfile", reason="soundfile is not installed (extra speech)")
    content, message = REFUSED[name]
    (tmp_path / "x.wav").write_bytes(content)
    with pytest.raises(ValueError, match=rf"(?s)/x\.wav.*{message}"):
        read_sound(tmp_path / "x.wav")


def test_without_the_library_16_bit_wav_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "soundfile", None)
    (tmp_path / "x.wav").write_bytes(riff(PCM))
    assert read_sound(tmp_path / "x.wav").tolist() == TONE.tolist()
    for content in (riff(PCM, FLOAT, 32), riff(PCM, bits=24), b"fLaC\0\0\0\x22", b""):
        (tmp_path / "x.wav").write_bytes(content)
        with pytest.raises(ValueError, match=r"/x\.wav.*--extras speech"):
            read_sound(tmp_path / "x.wav")


def test_speech_commands_are_read_as_they_are() -> None:
    """Whole numbers of 16 bits, bit for bit; nothing else, as the published data hold nothing else."""
    samples = np.random.default_rng(1).integers(-32768, 32768, 16000).astype("<i2")
    stream = io.BytesIO()
    with wave.open(stream, "wb") as file:
        file.setparams((1, 2, 16000, 0, "NONE", ""))
        file.writeframes(samples.tobytes())
    found = read_wave("x", stream.getvalue())
    assert found.dtype == np.int16 and found.tobytes() == samples.tobytes()
    for content in (stream.getvalue()[:-1], riff(PCM, bits=24), riff(PCM, rate=8000), b""):
        with pytest.raises(ValueError, match="^x"):
            read_wave("x", content)


def write(folder: Path, files: Dict[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def labels_of(out: Path) -> Dict[str, int]:
    found: Dict[str, int] = {}
    for split in source_of(out)["splits"].values():
        for label, count in split["labels"].items():
            found[label] = found.get(label, 0) + count
    return found


def test_no_clip_is_lost_without_a_word(tmp_path: Path) -> None:
    """Capitals, other codings and endings are read; what is omitted is counted."""
    pytest.importorskip("soundfile", reason="soundfile is not installed (extra speech)")
    forms = [riff(PCM), riff((TONE / 32768).astype("<f4").tobytes(), FLOAT, 32)]
    files = {f"wav/low/{number}.wav": form for number, form in enumerate(forms)}
    files.update({f"wav/high/{number}.WAV": form for number, form in enumerate(forms)})
    files.update({"wav/high/other.flac": by_library("FLAC", "PCM_16"), "wav/low/silent.Wav": riff(bytes(800))})
    files.update({"wav/low/notes.txt": b"x", "wav/low/more/5.wav": riff(PCM), "wav/low/._0.wav": b"x"})
    files.update({f"wav/none/{number}.wav": riff(bytes(800 + 2 * number)) for number in range(2)})
    floats = np.sin(np.arange(400)).round().astype("<i2")  # of full scale 1, cut to whole numbers
    files["wav/none/2.wav"] = riff(floats.tobytes())
    write(tmp_path, files)
    run = prepare("recordings", "--dir", tmp_path / "wav", "--out", tmp_path / "out").succeeded()
    assert labels_of(tmp_path / "out") == {"high": 3, "low": 3, "none": 3}
    assert "omitted: 1 hidden .wav, 1 .txt, 1 .wav in deeper folders" in run.output
    assert "9 clips, made 4000 samples long (0 cut, 4 filled to more than twice" in run.output


LOST: List[Tuple[Dict[str, bytes], str]] = [
    ({"b/1.txt": b"x", "b/2.jpg": b"x"}, "b holds no recordings"),
    ({"b/speaker/1.wav": riff(PCM)}, "but 1 .wav in deeper folders"),
    ({"b/1.wav": riff(PCM), "b/2.wav": riff(PCM)}, "labels with too few examples: 'b' has 2; 3 of each are needed"),
    ({f"b/{n}.m4a": b"\0\0\0\x20ftypM4A " for n in range(3)}, "b holds no recordings"),
]


@pytest.mark.parametrize(("files", "message"), LOST)
def test_a_label_that_would_vanish_is_an_error(files: Dict[str, bytes], message: str, tmp_path: Path) -> None:
    write(tmp_path / "wav", {**{f"a/{number}.wav": riff(PCM) for number in range(4)}, **files})
    options = ("recordings", "--dir", tmp_path / "wav", "--out", tmp_path / "out", "--samples", 1000)
    assert message in refusal(*options)
