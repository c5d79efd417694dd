"""WAV files: their chunks, even if the sizes in a header come from a pipe, and samples of every plain coding.

Sources: Microsoft's "Multiple channel audio data and WAVE files", EBU Tech 3306 (RF64), ITU-T G.711 (mu-law, A-law).
"""

import re
import struct
from typing import Iterator, NamedTuple, Optional, Tuple

import numpy as np

FULL_SCALE = 32_768.0
_PCM, _FLOAT, _A_LAW, _MU_LAW, _EXTENSIBLE = 1, 3, 6, 7, 0xFFFE
_CODINGS = {2: "ADPCM of Microsoft", 0x11: "ADPCM of IMA", 0x31: "GSM 6.10", 0x50: "MPEG", 0x55: "MP3", 0xFF: "AAC"}
_GUID_TAIL = bytes.fromhex("000000001000800000aa00389b71")
FROM_A_PIPE = 0x7FF0_0000  # a size from here on was written before the length was known
_RECORDINGS = (b"RIFF", b"RF64", b"BW64", b"data")  # chunks that begin another recording
_NOTES = (b"LIST", b"id3 ", b"ID3 ", b"bext", b"cue ", b"fact", b"smpl", b"inst", b"PEAK", b"_PMX", b"JUNK", b"PAD ")
_TAGS = (b"TAG", b"ID3", b"APETAGEX")  # trailing data that are not chunks
_ID3V1 = 128  # bytes of the tag that begins with TAG
_LOUDEST = 4.0  # for floats, whose full scale is 1


class WaveError(ValueError):
    """The samples of a WAV file cannot be read; the message is the rest of a sentence after "it"."""


class UnknownCoding(WaveError):
    """The coding of the samples is not plain."""


class Wave(NamedTuple):
    """The content of a WAV file.

    Attributes:
        rate: frames per second.
        samples: (frames, channels); int16 for 16 bits, float32 in the same units for all other codings.
        coding: in words.
    """

    rate: int
    samples: np.ndarray
    coding: str


class _Form(NamedTuple):
    """The chunk "fmt " of a file."""

    coding: int
    channels: int
    rate: int
    width: int  # bytes of a sample
    bits: int  # used bits


def parse_wave(content: bytes) -> Wave:
    """Return the samples of a WAV file (RIFF, RF64 or BW64).

    Raises:
        WaveError: if it is cut off, its sizes contradict each other, or its coding is not a plain one.
    """
    form: Optional[_Form] = None
    for name, begin, end in _chunks(content):
        if name == b"fmt ":
            form = _form(content[begin:end])
        elif name == b"data":
            if form is None:
                raise WaveError("has no description of its samples before them (no chunk 'fmt ')")
            return Wave(form.rate, *_samples(form, content[begin:end]))
    raise WaveError("has no samples (no chunk 'data')")


def _chunks(content: bytes) -> Iterator[Tuple[bytes, int, int]]:
    """Yield name, begin and end of each chunk up to the chunk of the samples, whose end is corrected."""
    long_size = None  # of the samples, in RF64
    place = 12
    while place + 8 <= len(content):
        name, size = content[place : place + 4], struct.unpack_from("<I", content, place + 4)[0]
        begin = place + 8
        if name == b"data":
            if long_size is not None and size == 0xFFFF_FFFF:
                size = long_size
            yield name, begin, _end_of_samples(content, begin, size)
            return
        if begin + size > len(content):
            raise WaveError(
                f"is cut off or damaged: its chunk {name!r} has {size} bytes, {len(content) - begin} follow"
            )
        if name == b"ds64" and size >= 16:
            long_size = struct.unpack_from("<Q", content, begin + 8)[0]
        yield name, begin, begin + size
        place = begin + size + size % 2


def _end_of_samples(content: bytes, begin: int, size: int) -> int:
    """Return the end of the samples, from the size in the header."""
    there = len(content) - begin
    if content.find(b"WAVEfmt ", begin) >= 0:
        raise _several()
    if size >= FROM_A_PIPE and size > there:
        return _before_notes(content, begin)
    if size > there:
        raise WaveError(f"is cut off: its header announces {size} bytes of samples, {there} are there")
    if any(_are_notes(content[begin + size + pad :]) for pad in {size % 2, 0}):  # some files omit the padding
        return begin + size
    if size == 0:
        return _before_notes(content, begin)  # from a pipe: the length was never written
    raise WaveError(f"has wrong sizes: its header announces {size} bytes of samples, {there - size} more follow")


def _before_notes(content: bytes, begin: int) -> int:
    """Return the end of samples of unknown size: the beginning of chunks that reach to the end, or of a tag."""
    for found in re.finditer(b"|".join(map(re.escape, _NOTES)), content[begin:]):
        if _are_notes(content[begin + found.start() :], whole=True):
            return begin + found.start()
    tag = len(content) - _ID3V1
    return tag if tag >= begin and content.startswith(b"TAG", tag) else len(content)


def _are_notes(rest: bytes, whole: bool = False) -> bool:
    """Return whether the bytes after the samples are consecutive chunks, tags, or zeros.

    Args:
        whole: whether the last chunk must be complete.

    Raises:
        WaveError: if there is another recording among them.
    """
    place = 0
    while rest[place:].strip(b"\0") and not rest.startswith(_TAGS, place):
        name = rest[place : place + 4]
        if name in _RECORDINGS:
            raise _several()
        if place + 8 > len(rest) or not all(32 <= byte < 127 for byte in name):
            return False
        size = struct.unpack_from("<I", rest, place + 4)[0]
        if place + 8 + size > len(rest):
            return name in _NOTES and not whole  # cut off, but the samples are complete
        place += 8 + size + size % 2
    return True


def _several() -> WaveError:
    return WaveError("holds several recordings, one after the other, of which only the first would be read")


def _form(chunk: bytes) -> _Form:
    if len(chunk) < 16:
        raise WaveError("is damaged: its chunk 'fmt ' is too short")
    coding, channels, rate, _, frame, bits = struct.unpack_from("<HHIIHH", chunk)
    used = bits
    if coding == _EXTENSIBLE and len(chunk) >= 40 and chunk[26:40] == _GUID_TAIL:
        coding = struct.unpack_from("<H", chunk, 24)[0]
        used = struct.unpack_from("<H", chunk, 18)[0]
    if channels == 0 or rate == 0:
        raise WaveError(f"is damaged: it has {channels} channels and {rate} samples per second")
    width = -(-bits // 8)
    if width == 3 and frame == 4 * channels:
        width = 4  # 24 bits in 32
    if coding in (_PCM, _FLOAT) and frame not in (0, width * channels):
        raise WaveError(f"contradicts itself: {channels} channels of {bits} bits in frames of {frame} bytes")
    return _Form(coding, channels, rate, width, used or bits)


def _samples(form: _Form, data: bytes) -> Tuple[np.ndarray, str]:
    """Return samples (frames, channels) in units of 16 bits, and their coding in words."""
    whole = len(data) // (form.channels * max(1, form.width)) * form.channels * form.width
    coded = np.frombuffer(data[:whole], dtype=np.uint8)
    bits = 8 * form.width
    if form.coding == _PCM and form.width in (1, 2, 3, 4):
        if form.width > 1 and form.bits < bits and _are_lower(coded, form):
            raise WaveError(f"contradicts itself: its {form.bits} bits should be the upper ones of {bits}, and are not")
        values, name = _integers(coded, form.width), f"{bits} bits"
    elif form.coding == _FLOAT and form.width in (4, 8):
        values, name = scaled_floats(coded.view(f"<f{form.width}")), f"floats of {bits} bits"
    elif form.coding in (_A_LAW, _MU_LAW) and form.width == 1:
        law = _A_LAW_TABLE if form.coding == _A_LAW else _MU_LAW_TABLE
        values, name = law[coded], "A-law" if form.coding == _A_LAW else "mu-law"
    else:
        name = _CODINGS.get(form.coding, f"number {form.coding:#06x}")
        raise UnknownCoding(f"is sound in WAV of another coding ({name}, {bits} bits)")
    return values.reshape(-1, form.channels), name


def _are_lower(coded: np.ndarray, form: _Form) -> bool:
    """Return whether numbers with fewer bits than their bytes are in the lower bits, and so too quiet."""
    bytes_of = np.zeros((len(coded) // form.width, 4), dtype=np.uint8)
    bytes_of[:, 4 - form.width :] = coded.reshape(-1, form.width)
    values = bytes_of.reshape(-1).view("<i4").astype(np.int64) >> 8 * (4 - form.width)
    below = (1 << 8 * form.width - form.bits) - 1
    return bool((values & below).any()) and _fit(values, form.bits)


def _fit(values: np.ndarray, bits: int) -> bool:
    """Return whether numbers fit into this many bits, with or without a sign."""
    return -(1 << bits - 1) <= int(values.min()) and int(values.max()) < 1 << bits


def _integers(coded: np.ndarray, width: int) -> np.ndarray:
    if width == 1:
        return (coded.astype(np.float32) - 128) * 256
    if width == 2:
        return coded.view("<i2")
    if width == 4:
        values = coded.view("<i4")
        audible = _audible((values / 65_536).astype(np.float32))
        if (values & 0xFF).any() and _fit(values, 24):
            raise WaveError(
                "is nearly silent: its numbers of 32 bits are within those of 24, as where such were written as 32; "
                "multiply its samples by 256 if so"
            )
        return audible
    wide = np.zeros((len(coded) // 3, 4), dtype=np.uint8)
    wide[:, 1:] = coded.reshape(-1, 3)
    return _audible((wide.reshape(-1).view("<i4") / 65_536).astype(np.float32))


def _audible(values: np.ndarray) -> np.ndarray:
    """Return samples in units of 16 bits unchanged; raise WaveError if they would be silence in 16 bits."""
    loudest = float(np.abs(values).max(initial=0.0))
    if 0 < loudest < 1:
        raise WaveError(
            f"is nearly silent: its loudest sample is {loudest / FULL_SCALE:.1e} of full scale, as where numbers of 16 "
            f"bits were written as 32, or floats were scaled twice; multiply its samples if so"
        )
    return values


def scaled_floats(values: np.ndarray) -> np.ndarray:
    """Return samples in units of 16 bits, float32, from floats of full scale 1; raise WaveError for other floats."""
    if not np.isfinite(values).all():
        raise WaveError("has samples that are not numbers (NaN or infinity)")
    loudest = float(np.abs(values).max(initial=0.0))
    if loudest > _LOUDEST:
        raise WaveError(f"has floats of up to {loudest:g}, where 1 is full scale: their range is not known")
    return _audible((values.astype(np.float64) * FULL_SCALE).astype(np.float32))


def _law_tables() -> Tuple[np.ndarray, np.ndarray]:
    """Return the values (256,) of the codes of A-law and of mu-law, in units of 16 bits."""
    code = np.arange(256)
    mu = ~code & 0xFF
    mu_size = ((((mu & 0x0F) << 3) + 0x84) << ((mu & 0x70) >> 4)) - 0x84
    a = code ^ 0x55
    step, exponent = a & 0x0F, (a & 0x70) >> 4
    a_size = np.where(exponent == 0, (step << 4) + 8, ((step << 4) + 0x108) << np.maximum(exponent - 1, 0))
    a_law = np.where(a & 0x80, a_size, -a_size)
    mu_law = np.where(mu & 0x80, -mu_size, mu_size)
    return a_law.astype(np.int16), mu_law.astype(np.int16)


_A_LAW_TABLE, _MU_LAW_TABLE = _law_tables()
