"""Read sound files as samples of one channel at 16 kHz: WAV by this package, other forms by the library soundfile."""

import contextlib
import io
import re
import tempfile
from typing import Any, Iterator, Optional

import numpy as np

from fairseq_mega.data.class_folders import Wanted
from fairseq_mega.data.file_kinds import FLAC, HEAD, MP3, NO_TEXT, OGG, WAV, FileKind, kind_of
from fairseq_mega.lab.prepare.classification.sound_headers import (
    bytes_beyond,
    checksum_of_ogg,
    samples_of_mp3,
    without_chunks_behind,
    without_flac_length,
)
from fairseq_mega.lab.prepare.classification.wave_files import (
    FROM_A_PIPE,
    UnknownCoding,
    Wave,
    WaveError,
    parse_wave,
    scaled_floats,
)

RATE = 16_000  # samples per second
BLOCK = 1 << 20  # samples read at once
CONVERT = f"`ffmpeg -i IN -ac 1 -ar {RATE} -c:a pcm_s16le OUT.wav`"
ENDINGS = (".aif", ".aifc", ".aiff", ".au", ".caf", ".flac", ".mp3", ".oga", ".ogg", ".opus", ".sph", ".wav", ".wave")
SOUNDS = Wanted("recordings", ENDINGS, lambda kind: kind.group == "sound")
WAVES = Wanted("recordings", (".wav",), lambda kind: False)


def read_sound(name: str, content: bytes) -> np.ndarray:
    """Return the samples (n,) of a sound file, in units of 16 bits: int16 for 16-bit files, float32 otherwise.

    Raises:
        ValueError: names the file and the command that converts it, if the file has several channels or another rate,
            is damaged, or is of a kind that cannot be read.
    """
    content = _without_tag(content)
    kind = kind_of(content[:HEAD])
    if kind is WAV:
        try:
            wave = parse_wave(content)
        except UnknownCoding as error:
            wave = _by_soundfile(name, content, kind, f"it {error}")
        except WaveError as error:
            raise ValueError(f"{name} {error}: {_mended(error)}") from error
    elif kind is not None and kind.group == "sound":
        wave = _by_soundfile(name, content, kind, f"it is {kind.name}")
    else:
        raise ValueError(f"{name} is not a recording: {_of_no_sound(kind, content)}")
    return _one_channel(name, wave)


def _without_tag(content: bytes) -> bytes:
    """Remove a tag ID3 in front of other forms than MP3, whose readers do not expect the tag."""
    if not content.startswith(b"ID3") or len(content) < 10:
        return content
    length = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(reversed(content[6:10])))
    kind = kind_of(content[10 + length :][:HEAD])
    return content if kind is None or kind is MP3 or kind.group != "sound" else content[10 + length :]


def read_wave(name: str, content: bytes) -> np.ndarray:
    """Return the samples of a 16-bit mono WAV file at 16 kHz, (n,) int16; raise ValueError for other files."""
    kind = kind_of(content[:HEAD])
    if kind is not WAV:
        raise ValueError(f"{name} cannot be read as WAV: {_of_no_sound(kind, content)}")
    try:
        wave = parse_wave(content)
    except WaveError as error:
        raise ValueError(f"{name} cannot be read as WAV: it {error}; {_mended(error)}") from error
    if wave.samples.dtype != np.int16:
        raise ValueError(f"{name}: one channel of 16 bits at {RATE} Hz is needed, {_found(wave)}")
    return _one_channel(name, wave)


def _one_channel(name: str, wave: Wave) -> np.ndarray:
    if wave.samples.shape[1] != 1 or wave.rate != RATE:
        raise ValueError(f"{name}: one channel at {RATE} Hz is needed, {_found(wave)}")
    return wave.samples[:, 0]


def _found(wave: Wave) -> str:
    return f"found {wave.samples.shape[1]} of {wave.coding} at {wave.rate} Hz; convert it, for example with {CONVERT}"


def _mended(error: WaveError) -> str:
    """Return the remedy for a WAV file that contradicts itself."""
    if "several recordings" in str(error):
        return f"cut it into files of one each, with {CONVERT} for the first"
    if "wrong sizes" in str(error):
        return f"write its header again: {CONVERT.replace('-i', '-ignore_length 1 -i')}"
    if "nearly silent" in str(error):
        return f"if it is silence, write it in 16 bits: {CONVERT}"
    return f"get a new copy, or convert what can be read of it: {CONVERT}"


def _of_no_sound(kind: Optional[FileKind], content: bytes) -> str:
    if kind is not None and kind is not NO_TEXT:
        return f"it is {kind.name}; convert it: {CONVERT}" if kind.group == "sound" else f"it is {kind.name}"
    return "it is empty" if not content else f"it has no header of a file of sound (it begins with {content[:12]!r})"


def _by_soundfile(name: str, content: bytes, kind: FileKind, described: str) -> Wave:
    """Read a file by the library soundfile; ``described`` is its kind, for messages."""
    try:
        import soundfile
    except (ImportError, OSError) as error:  # OSError: libsndfile is missing
        raise ValueError(
            f"{name}: {described}: install the library that may read it (pip install soundfile), or convert it: "
            f"{CONVERT}"
        ) from error
    if _holds_several(content, kind):
        raise ValueError(
            f"{name}: {described}, and it holds several recordings, one after the other, of which only the first "
            f"would be read: cut it into files of one each, with {CONVERT} for the first"
        )
    beyond = bytes_beyond(content)
    if beyond:
        raise ValueError(
            f"{name}: {described}, and it has wrong sizes: {beyond} bytes follow the samples that its header "
            f"announces: get a new copy"
        )
    content = without_chunks_behind(content)
    stated = samples_of_mp3(content) if kind is MP3 else 0
    if kind is FLAC:
        content, stated = without_flac_length(content)
    try:
        with _opened(soundfile, content, kind) as file:
            exact = file.subtype == "PCM_16"
            samples = _all_samples(file, "int16" if exact else "float64")
            wanted = stated if kind is FLAC else max(stated, file.frames)
            rate, coding, log = file.samplerate, file.subtype_info, file.extra_info
    except (RuntimeError, ValueError, TypeError) as error:
        raise ValueError(
            f"{name}: {described}, and soundfile cannot read it ({_fault(error)}): get a new copy, or convert it: "
            f"{CONVERT}"
        ) from error
    announced = _announced(content)
    if len(samples) < max(wanted, announced) or _is_cut_off(log) or (kind is OGG and not _is_whole_ogg(content)):
        raise ValueError(f"{name}: {described}, and it is cut off or damaged: get a new copy, or convert it: {CONVERT}")
    if _contradicts_itself(log, content, len(samples)) or (kind is FLAC and 0 < stated < len(samples)):
        raise ValueError(
            f"{name}: {described}, and its header announces another number of samples than it holds: get a new copy"
        )
    samples = samples[: announced or None]
    try:
        return Wave(rate, samples if exact else scaled_floats(samples), coding)
    except WaveError as error:
        raise ValueError(f"{name} {error}: convert it: {CONVERT}") from error


@contextlib.contextmanager
def _opened(soundfile: Any, content: bytes, kind: FileKind) -> Iterator[Any]:
    """Open a file with the library so that it ends with its samples, despite its header."""

    class ToItsEnd(soundfile.SoundFile):
        def seekable(self) -> bool:  # else the library searches the announced end
            return False

    if kind is not MP3:
        with ToItsEnd(io.BytesIO(content)) as file:
            yield file
        return
    with tempfile.NamedTemporaryFile(suffix=".mp3") as copy:  # libsndfile 1.2.2 reads these only by path
        copy.write(content)
        copy.flush()
        with ToItsEnd(copy.name) as file:
            yield file


def _all_samples(file: Any, kind: str) -> np.ndarray:
    """Return the samples (frames, channels) of a file of the library, block by block up to its end."""
    blocks = [file.read(BLOCK, dtype=kind, always_2d=True)]
    while len(blocks[-1]) == BLOCK:
        blocks.append(file.read(BLOCK, dtype=kind, always_2d=True))
    return np.concatenate(blocks)


def _fault(error: Exception) -> str:
    """Return the library's message without the address of the file in memory."""
    return re.sub(r"Error opening <.*?>: ", "", str(error)).rstrip(".")


def _holds_several(content: bytes, kind: FileKind) -> bool:
    """Return whether a file contains the beginning of another file, for instance after joining files."""
    if kind is MP3:  # the frame that contains the number of following frames
        return len(re.findall(rb"\xff[\xe2-\xfb]..(?:\0{9}|\0{17}|\0{32})(?:Xing|Info)\0", content, re.DOTALL)) > 1
    return content.find(content[:8], 8) >= 0


def _is_whole_ogg(content: bytes) -> bool:
    """Return whether the pages of an Ogg file are consecutive and undamaged, up to a page marked as the last."""
    place = flags = 0
    while content.startswith(b"OggS", place) and place + 27 <= len(content) and not flags & 4:
        flags, count = content[place + 5], content[place + 26]
        length = 27 + count + sum(content[place + 27 : place + 27 + count])
        page = content[place : place + length]
        if len(page) < length or checksum_of_ogg(page) != int.from_bytes(page[22:26], "little"):
            return False
        place += length
    return bool(flags & 4)


def _announced(content: bytes) -> int:
    """Return the number of samples that the header of a SPHERE file announces; 0 for other files."""
    found = re.search(rb"\nsample_count -i (\d+)", content[:HEAD]) if content.startswith(b"NIST_1A") else None
    return int(found.group(1)) if found else 0


def _contradicts_itself(log: str, content: bytes, samples: int) -> bool:
    """Return whether the number of samples found agrees with one field of an AIFF file, and not with the other.

    In IMA ADPCM the other field counts packets of 64 samples.
    """
    numbers = map(int, re.findall(r"\((\d+)\) not equal to frame count", log))
    packed = re.match(rb"FORM.{4}AIFC.{0,200}?COMM.{22}ima4", content, re.DOTALL)
    return any(number > 0 and not (packed and 64 * number == samples) for number in numbers)


def _is_cut_off(log: str) -> bool:
    """Return whether the library found a file shorter than its header announces, except for sizes from a pipe."""
    sizes = re.findall(r": (\d+) \(should be (\d+)\)", log)
    return "truncated file" in log or any(int(there) < int(stated) < FROM_A_PIPE for stated, there in sizes)
