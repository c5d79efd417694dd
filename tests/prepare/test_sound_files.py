"""Files of sound: every plain coding of WAV, headers that a pipe or a wrong size left, other forms by soundfile."""

import io
import struct
import sys
import wave
from functools import partial
from pathlib import Path
from typing import Callable, Dict, List, Tuple

import numpy as np
import pytest

from fairseq_mega.lab.prepare.classification.sound_files import read_sound, read_wave
from tests.support.prepare_runs import prepare, refusal, source_of

TONE = np.round(9000 * np.sin(np.arange(4000) * 0.05)).astype(np.int16)
EXTENSIBLE, FLOAT, A_LAW, MU_LAW = 0xFFFE, 3, 6, 7
GUID = bytes.fromhex("000000001000800000aa00389b71")


def riff(
    data: bytes,
    coding: int = 1,
    bits: int = 16,
    channels: int = 1,
    rate: int = 16000,
    *,
    size: int = -1,
    before: bytes = b"",
    behind: bytes = b"",
    inner: int = 0,
) -> bytes:
    """A WAV file whose header may lie about the size of its data."""
    frame = channels * bits // 8
    form = struct.pack("<HHIIHH", coding, channels, rate, rate * frame, frame, bits)
    if coding == EXTENSIBLE:
        form += struct.pack("<HHI", 22, inner >> 8 or bits, 0) + struct.pack("<H", inner & 0xFF) + GUID
    content = b"WAVE" + b"fmt " + struct.pack("<I", len(form)) + form + before
    content += b"data" + struct.pack("<I", len(data) if size < 0 else size) + data + behind
    return b"RIFF" + struct.pack("<I", len(content)) + content


def rf64(size: int) -> bytes:
    ds64 = b"ds64" + struct.pack("<IQQQI", 28, len(PCM) + 80, size, len(TONE), 0)
    return b"RF64\xff\xff\xff\xffWAVE" + ds64 + riff(PCM, size=0xFFFF_FFFF)[12:]


def chunk(name: bytes, content: bytes) -> bytes:
    return name + struct.pack("<I", len(content)) + content


def wide(width: int) -> bytes:
    """The tone in so many bytes a sample."""
    values = TONE.astype("<i4") << 16
    return values.view(np.uint8).reshape(-1, 4)[:, 4 - width :].tobytes()


def of_fewer_bits(used: int, width: int, shift: int) -> bytes:
    """The tone as numbers of so many bits, at a place within their bytes."""
    values = ((TONE.astype("<i4") >> 16 - used) if used < 16 else (TONE.astype("<i4") << used - 16) + 7) << shift
    data = values.view(np.uint8).reshape(-1, 4)[:, :width].tobytes()
    said = struct.pack("<HH", width, used)
    return riff(data, bits=8 * width).replace(struct.pack("<HH", width, 8 * width), said, 1)


def by_library(form: str, subtype: str, times: int = 1) -> bytes:
    soundfile = pytest.importorskip("soundfile", reason="soundfile is not installed (extra speech)")
    stream = io.BytesIO()
    soundfile.write(stream, np.tile(TONE, times), 16000, format=form, subtype=subtype)
    return stream.getvalue()


def with_number(make: Callable[[], bytes], form: str, place: Tuple[bytes, int], value: int) -> Callable[[], bytes]:
    """Another number in a header: in the form of struct, so many bytes behind a mark."""

    def changed() -> bytes:
        content = make()
        begin = content.index(place[0]) + place[1]
        return content[:begin] + struct.pack(form, value) + content[begin + struct.calcsize(form) :]

    return changed


def flac(total: int) -> Callable[[], bytes]:
    """The tone with another number of samples in the header, 16 bits a sample at 16 kHz."""
    return with_number(lambda: by_library("FLAC", "PCM_16"), ">Q", (b"fLaC", 18), 16000 << 44 | 15 << 36 | total)


def in_library(form: str) -> Callable[[], bytes]:
    return partial(by_library, form, "PCM_16")


def long_mp3() -> bytes:
    return by_library("MP3", "MPEG_LAYER_III", 10)


PCM = TONE.tobytes()
INFO = chunk(b"LIST", b"INFO")


def wave64_before_a_chunk() -> bytes:
    """The library reads the chunk as samples."""
    content = by_library("W64", "PCM_16")
    behind = b"list" + content[4:16] + (24 + 800).to_bytes(8, "little") + b"loud" * 200
    return content[:16] + (len(content) + len(behind)).to_bytes(8, "little") + content[24:] + behind


READ: Dict[str, Tuple[Callable[[], bytes], float]] = {  # and the largest difference to the tone
    "16 bits": (lambda: riff(PCM), 0),
    "8 bits": (lambda: riff((TONE // 256 + 128).astype(np.uint8).tobytes(), bits=8), 256),
    "24 bits": (lambda: riff(wide(3), bits=24), 0),
    "32 bits": (lambda: riff(wide(4), bits=32), 0),
    "12 bits in 16": (lambda: of_fewer_bits(12, 2, 4), 16),
    "20 bits in 24": (lambda: of_fewer_bits(20, 3, 4), 1),
    "floats": (lambda: riff((TONE / 32768).astype("<f4").tobytes(), FLOAT, 32), 0),
    "doubles": (lambda: riff((TONE / 32768).astype("<f8").tobytes(), FLOAT, 64), 0),
    "extensible, 16 bits": (lambda: riff(PCM, EXTENSIBLE, inner=1), 0),
    "extensible, 24 bits": (lambda: riff(wide(3), EXTENSIBLE, 24, inner=1), 0),
    "extensible, 24 bits in 32": (lambda: riff(wide(4), EXTENSIBLE, 32, inner=24 << 8 | 1), 0),
    "extensible, 24 bits in 32, rounded to more": (
        lambda: riff(((TONE.astype("<i4") << 16) + 7).tobytes(), EXTENSIBLE, 32, inner=24 << 8 | 1),
        1,
    ),
    "extensible floats": (lambda: riff((TONE / 32768).astype("<f4").tobytes(), EXTENSIBLE, 32, inner=3), 0),
    "mu-law": (lambda: riff(companded(TONE, MU_LAW), MU_LAW, 8), 300),
    "A-law": (lambda: riff(companded(TONE, A_LAW), A_LAW, 8), 300),
    "size 0, through a pipe": (lambda: riff(PCM, size=0), 0),
    "size of 32 bits, through a pipe": (lambda: riff(PCM, size=0xFFFF_FFFF), 0),
    "size of 31 bits, through a pipe": (lambda: riff(PCM, size=0x7FFF_F000), 0),
    "size 0 before chunks": (lambda: riff(PCM, size=0, behind=INFO + chunk(b"id3 ", b"x" * 900)), 0),
    "size of 32 bits before chunks": (
        lambda: riff(PCM, size=0xFFFF_FFFF, behind=chunk(b"LIST", b"INFOodd") + b"\0"),
        0,
    ),
    "size of 32 bits before a chunk without padding": (
        lambda: riff(PCM, size=0xFFFF_FFFF, behind=chunk(b"bext", b"odd")),
        0,
    ),
    "size 0 before a tag": (lambda: riff(PCM, size=0, behind=b"TAG" + b"x" * 125), 0),
    "size 0 and the name of a chunk among the samples": (lambda: riff(PCM[:8] + b"LIST" + PCM[12:], size=0), 30000),
    "RF64": (lambda: rf64(len(PCM)), 0),
    "RF64 through a pipe": (lambda: rf64(0), 0),
    "chunks before and behind": (
        lambda: riff(PCM, before=chunk(b"LIST", b"INFO"), behind=chunk(b"id3 ", bytes(5000))),
        0,
    ),
    "a tag behind": (lambda: riff(PCM, behind=b"TAG" + b"x" * 125), 0),
    "a tag behind chunks": (lambda: riff(PCM, behind=INFO + b"TAG" + b"x" * 125), 0),
    "zeros behind": (lambda: riff(PCM, behind=bytes(2000)), 0),
    "a chunk behind that is cut off": (lambda: riff(PCM, behind=INFO[:-2]), 0),
    "FLAC": (lambda: by_library("FLAC", "PCM_16"), 0),
    "FLAC through a pipe": (flac(0), 0),
    "AU through a pipe": (with_number(in_library("AU"), ">I", (b".snd", 8), 0xFFFFFFFF), 0),
    "AIFF through a pipe": (with_number(in_library("AIFF"), ">I", (b"SSND", 4), 0), 0),
    "AU before zeros": (lambda: by_library("AU", "PCM_16") + bytes(2000), 0),
    "AIFF before a chunk": (lambda: by_library("AIFF", "PCM_16") + b"NAME\0\0\0\4tone", 0),
    "FLAC of 24 bits": (lambda: by_library("FLAC", "PCM_24"), 0),
    "AIFF": (lambda: by_library("AIFF", "PCM_16"), 0),
    "SPHERE": (lambda: by_library("NIST", "PCM_16"), 0),
    "SPHERE, mu-law": (lambda: by_library("NIST", "ULAW"), 300),
    "SPHERE before zeros": (lambda: by_library("NIST", "PCM_16") + bytes(2000), 0),
    "Ogg before text": (lambda: by_library("OGG", "VORBIS") + b"some words" * 40, 2000),
    "FLAC behind a tag": (lambda: b"ID3\x03\0\0\0\0\x02\x01" + bytes(257) + by_library("FLAC", "PCM_16"), 0),
    "WAV behind a tag": (lambda: b"ID3\x04\0\0\0\0\0\x05title" + riff(PCM), 0),
    "AU": (lambda: by_library("AU", "PCM_16"), 0),
    "CAF": (lambda: by_library("CAF", "PCM_16"), 0),
    "Wave64": (lambda: by_library("W64", "PCM_16"), 0),
    "Wave64 before a chunk": (wave64_before_a_chunk, 0),
    "Ogg": (lambda: by_library("OGG", "VORBIS"), 2000),
    "MP3": (lambda: by_library("MP3", "MPEG_LAYER_III"), 2000),
    "AIFF with ADPCM": (lambda: by_library("AIFF", "IMA_ADPCM"), 2000),
    "WAV with ADPCM": (lambda: by_library("WAV", "IMA_ADPCM"), 2000),
}


def companded(samples: np.ndarray, law: int) -> bytes:
    """The nearest codes of a law, by its table."""
    from fairseq_mega.lab.prepare.classification import wave_files

    table = wave_files._A_LAW_TABLE if law == A_LAW else wave_files._MU_LAW_TABLE
    return np.abs(samples[:, None].astype(int) - table).argmin(axis=1).astype(np.uint8).tobytes()


@pytest.mark.parametrize("name", READ)
def test_what_is_read(name: str) -> None:
    make, most = READ[name]
    samples = read_sound("x", make())
    assert len(samples) == len(TONE) or name.endswith("ADPCM")  # whole blocks
    assert np.abs(samples[: len(TONE)].astype(float) - TONE).max() <= most


def test_the_laws_are_those_of_the_standard() -> None:
    """Some values of G.711's tables, in units of 16 bits."""
    mu = read_sound("x", riff(bytes([0xFF, 0x7F, 0x80, 0x00, 0xF0]), MU_LAW, 8)).tolist()
    assert mu == [0, 0, 32124, -32124, 120]
    assert read_sound("x", riff(bytes([0xD5, 0x55, 0xAA, 0x2A, 0x80]), A_LAW, 8)).tolist() == [
        8,
        -8,
        32256,
        -32256,
        5504,
    ]


def test_an_odd_size_may_lack_its_padding() -> None:
    for padding in (b"", b"\0"):
        assert len(read_sound("x", riff(bytes(range(201)), bits=8, behind=padding + INFO))) == 201


def cut(make: Callable[[], bytes]) -> Callable[[], bytes]:
    return lambda: make()[: len(make()) // 2]


def twice(form: str, subtype: str) -> bytes:
    return 2 * by_library(form, subtype)


def all_but_the_last_page() -> bytes:
    content = by_library("OGG", "OPUS", 12)
    return content[: content.rindex(b"OggS\0")]


def damaged_page() -> bytes:
    """Vorbis whose page in the middle is not what its checksum says; the library leaves that page out."""
    content = bytearray(by_library("OGG", "VORBIS", 12))
    content[len(content) // 2] ^= 0x55
    return bytes(content)


REFUSED: Dict[str, Tuple[Callable[[], bytes], str]] = {
    "cut off": (lambda: riff(PCM)[:4000], "is cut off: its header announces 8000 bytes of samples, 3956 are there"),
    "a size that is too small": (lambda: riff(PCM, size=100), "has wrong sizes.* 7900 more follow.*-ignore_length 1"),
    "a size that is a little too small": (lambda: riff(PCM, size=7100), "has wrong sizes.* 900 more follow"),
    "a size that lacks two samples": (lambda: riff(PCM[:2004], size=2000), "has wrong sizes.* 4 more follow"),
    "a size of a few bytes": (lambda: riff(PCM[:1000], size=4), "has wrong sizes.* 996 more follow"),
    "a chunk that is too long": (
        lambda: riff(PCM, before=b"LIST\xff\xff\0\0INFO"),
        "is cut off or damaged: its chunk b'LIST' has 65535 bytes",
    ),
    "two files in one": (lambda: riff(PCM) + riff(PCM), "holds several recordings, one after the other"),
    "two files with chunks behind": (
        lambda: riff(PCM, behind=INFO) + riff(PCM, behind=INFO),
        "holds several recordings, one after the other",
    ),
    "two files through a pipe": (lambda: riff(PCM, size=0) + riff(PCM, size=0), "holds several recordings"),
    "samples in two chunks": (lambda: riff(PCM, behind=INFO + chunk(b"data", PCM)), "holds several recordings"),
    "numbers of 16 bits in 32": (lambda: riff(TONE.astype("<i4").tobytes(), bits=32), "is nearly silent.*32, or"),
    "floats that were scaled twice": (lambda: riff((TONE / 2**30).astype("<f4").tobytes(), FLOAT, 32), "nearly silent"),
    "24 bits, the lower ones of 32, by the extended header": (
        lambda: riff((TONE.astype("<i4") * 256 + 7).tobytes(), EXTENSIBLE, 32, inner=24 << 8 | 1),
        "contradicts itself: its 24 bits should be the upper ones of 32",
    ),
    "24 bits, the lower ones of 32, by no header": (
        lambda: riff((TONE.astype("<i4") * 256 + 7).tobytes(), bits=32),
        "is nearly silent: its numbers of 32 bits are within those of 24.*multiply its samples by 256",
    ),
    "24 bits without a sign before them, in 32": (
        lambda: riff((TONE.astype("<i4") * 256 + 7 & 0xFFFFFF).tobytes(), bits=32),
        "is nearly silent: its numbers of 32 bits are within those of 24",
    ),
    "24 bits without a sign before them, by the extended header": (
        lambda: riff((TONE.astype("<i4") * 256 + 7 & 0xFFFFFF).tobytes(), EXTENSIBLE, 32, inner=24 << 8 | 1),
        "contradicts itself: its 24 bits should be the upper ones of 32",
    ),
    "24 bits, the lower ones of 32": (
        lambda: riff((TONE.astype("<i4") * 256 + 7).tobytes(), EXTENSIBLE, 32, inner=1).replace(
            struct.pack("<HHHHI", 4, 32, 22, 32, 0), struct.pack("<HHHHI", 4, 24, 22, 24, 0), 1
        ),
        "contradicts itself: its 24 bits should be the upper ones of 32",
    ),
    "12 bits, the lower ones of 16": (
        lambda: of_fewer_bits(12, 2, 0),
        "contradicts itself: its 12 bits should be the upper ones of 16",
    ),
    "20 bits, the lower ones of 24": (
        lambda: of_fewer_bits(20, 3, 0),
        "contradicts itself: its 20 bits should be the upper ones of 24",
    ),
    "frames of another size": (
        lambda: riff(PCM).replace(struct.pack("<HH", 2, 16), struct.pack("<HH", 4, 16), 1),
        "contradicts itself: 1 channels of 16 bits in frames of 4 bytes",
    ),
    "no samples": (lambda: riff(PCM)[:36], "has no samples"),
    "no form": (lambda: b"RIFF\0\0\0\0WAVE" + chunk(b"data", PCM), "has no description of its samples"),
    "floats of another range": (lambda: riff(TONE.astype("<f4").tobytes(), FLOAT, 32), "of up to 9000.*not known"),
    "no numbers": (lambda: riff(np.full(9, np.nan, "<f4").tobytes(), FLOAT, 32), "NaN"),
    "two channels": (lambda: riff(PCM, channels=2), "found 2 of 16 bits at 16000 Hz; convert it.*ffmpeg"),
    "another rate": (lambda: riff(PCM, rate=44100), "found 1 of 16 bits at 44100 Hz; convert it.*ffmpeg"),
    "a coding that nobody knows": (lambda: riff(PCM, 0x1234), "another coding .number 0x1234.*ffmpeg"),
    "M4A": (lambda: b"\0\0\0\x20ftypM4A " + bytes(99), "it is sound or film in MPEG-4 .*ffmpeg"),
    "AMR": (lambda: b"#!AMR\n" + bytes(99), "it is sound in AMR.*ffmpeg"),
    "a page": (lambda: b"<!DOCTYPE html>", "is not a recording: it has no header of a file of sound .it begins with"),
    "nothing": (lambda: b"", "is not a recording: it is empty"),
    "an archive": (lambda: b"PK\x03\x04" + bytes(99), "is not a recording: it is packed with zip"),
    "a pointer": (
        lambda: b"version https://git-lfs.github.com/spec/v1\n",
        "is not a recording: it is a pointer of Git",
    ),
    "AIFF, cut off": (cut(lambda: by_library("AIFF", "PCM_16")), "sound in AIFF, and it is cut off"),
    "SPHERE, cut off": (cut(lambda: by_library("NIST", "PCM_16")), "sound in NIST SPHERE, and it is cut off"),
    "FLAC, cut off": (cut(lambda: by_library("FLAC", "PCM_16")), "sound in FLAC, and (soundfile cannot|it is cut off)"),
    **{
        f"{name} that announces {fewer}": (make, f"wrong sizes: {rest} bytes follow the samples that its header")
        for name, fewer, rest, make in (
            ("AU", "fewer", 6000, with_number(in_library("AU"), ">I", (b".snd", 8), 2000)),
            ("AU", "none", 8000, with_number(in_library("AU"), ">I", (b".snd", 8), 0)),
            ("AIFF", "fewer", 6000, with_number(in_library("AIFF"), ">I", (b"SSND", 4), 2008)),
            ("CAF", "fewer", 6000, with_number(in_library("CAF"), ">q", (b"data", 4), 2004)),
            ("Wave64", "fewer", 6000, with_number(in_library("W64"), "<Q", (b"data", 16), 2024)),
            ("VOC", "fewer", 6001, with_number(in_library("VOC"), "<H", (b"\x09\x4c\x1f", 1), 2012)),
            ("SPHERE", "fewer", 6000, lambda: by_library("NIST", "PCM_16").replace(b"-i 4000\n", b"-i 1000\n")),
        )
    },
    "AIFF that contradicts itself": (
        with_number(in_library("AIFF"), ">I", (b"COMM", 10), 1000),
        "its header announces another number of samples than it holds",
    ),
    "FLAC that announces fewer": (flac(1000), "its header announces another number of samples than it holds"),
    "FLAC that announces more": (flac(5000), "sound in FLAC, and it is cut off"),
    "MP3 that announces fewer": (with_number(long_mp3, ">I", (b"Xing", 8), 20), "sound in MP3, and it is cut off or"),
    "MP3 that announces more": (with_number(long_mp3, ">I", (b"Xing", 8), 90), "sound in MP3, and it is cut off or"),
    "MP3 of frames of many sizes that announces none": (
        with_number(long_mp3, ">I", (b"Xing", 4), 14),
        "sound in MP3, and it is cut off or",
    ),
    "Vorbis, cut off": (cut(lambda: by_library("OGG", "VORBIS", 12)), "sound in Ogg, and it is cut off or"),
    "Vorbis with a byte of other bits": (damaged_page, "sound in Ogg, and it is cut off or damaged"),
    "Opus, cut off": (all_but_the_last_page, "sound in Ogg, and it is cut off or damaged"),
    "Opus, zeros at its end": (
        lambda: all_but_the_last_page() + bytes(5000),
        "sound in Ogg, and it is cut off or damaged",
    ),
    **{
        f"{form}, {subtype}, two in one": (
            partial(twice, form, subtype),
            f"{said}, and it holds several recordings",
        )
        for form, subtype, said in (
            ("FLAC", "PCM_16", "sound in FLAC"),
            ("OGG", "VORBIS", "sound in Ogg"),
            ("OGG", "OPUS", "sound in Ogg"),
            ("MP3", "MPEG_LAYER_III", "sound in MP3"),
            ("AU", "PCM_16", "sound in AU"),
            ("CAF", "PCM_16", "sound in CAF"),
            ("W64", "PCM_16", "sound in Wave64"),
            ("NIST", "PCM_16", "sound in NIST SPHERE"),
            ("VOC", "PCM_16", "sound in VOC"),
        )
    },
    "RIFX without sense": (
        lambda: b"RIFX" + bytes(99),
        "sound in RIFX, and soundfile cannot read it .[A-Z][^<>]*.: get",
    ),
    "Wave64, cut off": (cut(lambda: by_library("W64", "PCM_16")), "sound in Wave64, and it is cut off"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    make, message = REFUSED[name]
    with pytest.raises(ValueError, match=f"(?s)^x.wav.*{message}"):
        read_sound("x.wav", make())


@pytest.mark.parametrize("content", [b"fLaC\0\0\0\x22", b"NIST_1A\n   1024\n", riff(PCM, 2, 4)])
def test_a_missing_library_is_named(content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(ValueError, match=r"^x: it is sound in .*pip install soundfile.*ffmpeg"):
        read_sound("x", content)


def test_speech_commands_are_read_as_they_are() -> None:
    """Whole numbers of 16 bits, bit for bit; nothing else, as the published data hold nothing else."""
    samples = np.random.default_rng(1).integers(-32768, 32768, 16000).astype("<i2")
    stream = io.BytesIO()
    with wave.open(stream, "wb") as file:
        file.setparams((1, 2, 16000, 0, "NONE", ""))
        file.writeframes(samples.tobytes())
    found = read_wave("x", stream.getvalue())
    assert found.dtype == np.int16 and found.tobytes() == samples.tobytes()
    with pytest.raises(ValueError, match="one channel of 16 bits at 16000 Hz is needed, found 1 of 24 bits"):
        read_wave("x", riff(wide(3), bits=24))


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
    """Capitals, other codings and endings are read; what is left out is counted, and so are silent clips."""
    forms = [riff(PCM), riff(PCM, size=0), riff(wide(3), bits=24), riff(companded(TONE, MU_LAW), MU_LAW, 8)]
    files = {f"wav/low/{number}.wav": form for number, form in enumerate(forms)}
    files.update({f"wav/high/{number}.WAV": form for number, form in enumerate(forms)})
    files.update({"wav/high/other.dat": riff(PCM), "wav/low/silent.Wav": riff(bytes(800))})
    files.update({"wav/low/notes.txt": b"x", "wav/low/more/5.wav": riff(PCM), "wav/low/._0.wav": b"x"})
    files.update({f"wav/none/{number}.wav": riff(bytes(800 + 2 * number)) for number in range(2)})
    floats = np.sin(np.arange(400)).round().astype("<i2")  # of full scale 1, cut to whole numbers
    files["wav/none/2.wav"] = riff(floats.tobytes())
    write(tmp_path, files)
    run = prepare("recordings", "--dir", tmp_path / "wav", "--out", tmp_path / "out").succeeded()
    assert labels_of(tmp_path / "out") == {"high": 5, "low": 5, "none": 3}
    assert "left out: 1 .txt, 1 hidden .wav, 1 in folders one level deeper (low/more)" in run.output
    assert "13 clips of 3 labels, made 4000 samples long (0 of them cut, 4 filled to more than twice" in run.output
    assert "4 of the clips are silent from beginning to end (32,767 is full scale: " in run.output
    assert "silent.Wav" in run.output
    assert "; all of 'none'\n" in run.output


def test_silence_alone_is_refused(tmp_path: Path) -> None:
    write(tmp_path, {f"wav/{label}/{number}.wav": riff(bytes(4000)) for label in "ab" for number in range(3)})
    message = refusal("recordings", "--dir", tmp_path / "wav", "--out", tmp_path / "out")
    assert "all clips are silent from beginning to end (32,767 is full scale: multiply" in message


LOST: List[Tuple[Dict[str, bytes], str]] = [
    ({"b/1.txt": b"x", "b/2.jpg": b"x"}, "b holds no recordings"),
    ({"b/speaker/1.wav": riff(PCM)}, "but 1 in folders one level deeper (speaker)"),
    ({"b/1.wav": riff(PCM), "b/2.wav": riff(PCM)}, "labels with too few examples: 'b' has 2; 3 of each are needed"),
    ({f"b/{n}.wav": riff(b"") for n in range(3)}, "b/0.wav contains no sample"),
    ({f"b/{n}.m4a": b"\0\0\0\x20ftypM4A " for n in range(3)}, "b/0.m4a: it is sound or film in MPEG-4"),
    ({f"b/{n}.wav": riff(bytes(4000) + PCM) for n in range(3)}, "first 1000 of 6000 samples are silent"),
]


@pytest.mark.parametrize(("files", "message"), LOST)
def test_a_label_that_would_vanish_is_an_error(files: Dict[str, bytes], message: str, tmp_path: Path) -> None:
    write(tmp_path / "wav", {**{f"a/{number}.wav": riff(PCM) for number in range(4)}, **files})
    options = ("recordings", "--dir", tmp_path / "wav", "--out", tmp_path / "out", "--samples", 1000)
    assert message in refusal(*options)


def test_labels_are_counted_before_a_clip_is_read(tmp_path: Path) -> None:
    write(tmp_path / "wav", {**{f"a/{number}.wav": b"no sound" for number in range(4)}, "b/0.wav": riff(PCM)})
    message = refusal("recordings", "--dir", tmp_path / "wav", "--out", tmp_path / "out")
    assert "labels with too few examples: 'b' has 1" in message


@pytest.mark.parametrize(
    ("short", "long", "times", "refused"),
    [(60, 3, 60, True), (60, 3, 9, False), (9, 3, 60, False), (60, 1, 11, False), (3, 60, 60, False)],
)
def test_clips_are_not_filled_to_the_length_of_a_few(
    short: int, long: int, times: int, refused: bool, tmp_path: Path
) -> None:
    """Refused where the longest has over ten times the median, and all over ten times their sound."""
    files = {f"{'ab'[number % 2]}/{number}.wav": riff(PCM[:2000]) for number in range(short + 3)}
    files.update({f"b/noise {number}.wav": riff(PCM[:2000] * times) for number in range(long)})
    write(tmp_path / "wav", files)
    options: List[object] = ["recordings", "--dir", tmp_path / "wav", "--out", tmp_path / "out"]
    if refused:
        message = refusal(*options)
        assert f"b/noise 0.wav has {1000 * times:,} samples and half of the 66 clips at most 1,000" in message
        assert "give --samples, such as --samples 1000" in message
        options += ["--samples", 1000]
    assert f"{short + long + 3} clips of 2 labels, made" in prepare(*options).succeeded().output


def test_copies_of_clips_are_told(tmp_path: Path) -> None:
    files = {f"{label}/{number}.wav": riff(PCM[: 2000 + 2 * number]) for label in "ab" for number in range(4)}
    write(tmp_path / "wav", {**files, "b/4.wav": files["b/3.wav"], "b/5.wav": files["b/3.wav"]})
    run = prepare("recordings", "--dir", tmp_path / "wav", "--out", tmp_path / "out").succeeded()
    assert "clips with several labels, of which a model can learn only one: 4" in run.output
