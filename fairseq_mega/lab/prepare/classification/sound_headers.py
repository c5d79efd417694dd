"""Samples of a sound file beyond the number that its header announces; readers drop these samples silently.

The reader of WAV files is :mod:`fairseq_mega.lab.prepare.classification.wave_files`. Sources: Apple's "Audio
Interchange File Format" 1.3 and "Core Audio Format Specification", RFC 3533 (Ogg), RFC 9639 (FLAC), ISO/IEC 11172-3 and
13818-3 (MP3).
"""

import re
import struct
import zlib
from typing import NamedTuple, Optional, Tuple

from fairseq_mega.data.file_kinds import HEAD
from fairseq_mega.lab.prepare.classification.wave_files import FROM_A_PIPE


class _Layout(NamedTuple):
    """A file format that consists of chunks.

    Attributes:
        begins: pattern of the first bytes.
        first: place of the first chunk.
        head: name and size of a chunk, for struct.
        samples: pattern of the name of the chunk with the samples.
        counted: whether the size of a chunk includes its head.
        even: sizes are padded to multiples of this number.
    """

    begins: bytes
    first: int
    head: str
    samples: bytes
    counted: bool
    even: int


_WAVE64 = _Layout(rb"riff\x2e\x91\xcf\x11", 40, "<16sQ", rb"data", True, 8)
_LAYOUTS = (
    _Layout(rb"FORM.{4}(AIF[FC]|8SVX)", 12, ">4sI", rb"SSND|BODY", False, 2),
    _Layout(rb"RIFX.{4}WAVE", 12, ">4sI", rb"data", False, 2),
    _Layout(rb"caff", 8, ">4sq", rb"data", False, 1),
    _WAVE64,
)
_SAMPLES_OF_VOC = (1, 2, 9)  # types of block
_FLAC_TOTAL = slice(18, 26)  # in a file: 28 bits of other numbers, then the number of samples
_LONGEST_FLAC = (1 << 36) - 1
_KBITS = {  # per second, of MP3 by the number of its version
    3: (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    2: (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
    0: (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
_RATES = {3: (44_100, 48_000, 32_000), 2: (22_050, 24_000, 16_000), 0: (11_025, 12_000, 8_000)}
_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))
_SPARE = 6  # frames of MP3 that contain delay and padding, or the tag


def bytes_beyond(content: bytes) -> int:
    """Return the number of bytes after the announced samples that are neither zeros nor further chunks."""
    for layout in _LAYOUTS:
        if re.match(layout.begins, content, re.DOTALL):
            return _beyond_chunk(content, layout)
    end = None
    if content.startswith(b".snd"):
        offset, size = struct.unpack_from(">II", content.ljust(12, b"\0"), 4)
        end = None if size >= FROM_A_PIPE else offset + size
    elif content.startswith(b"NIST_1A"):
        end = _end_of_sphere(content)
    elif content.startswith(b"Creative Voice File\x1a"):
        end = _end_of_voc(content)
    return 0 if end is None or not content[end:].strip(b"\0") else len(content) - end


def _beyond_chunk(content: bytes, layout: _Layout) -> int:
    place, length, read = layout.first, struct.calcsize(layout.head), False
    while content[place:].strip(b"\0"):
        if place + length > len(content):
            return len(content) - place if read else 0
        name, size = struct.unpack_from(layout.head, content, place)
        size -= length if layout.counted else 0
        if read and not (all(32 <= byte < 127 for byte in name[:4]) and 0 <= size <= len(content) - place - length):
            return len(content) - place
        if re.match(layout.samples, name):
            if not 0 < size < FROM_A_PIPE:
                return 0  # written before the length was known
            read = True
        place += length + size + -size % layout.even
    return 0


def without_chunks_behind(content: bytes) -> bytes:
    """Return a Wave64 file that ends with its samples, because the library reads all following bytes as samples.

    Other formats, and files whose length was unknown when they were begun, are returned unchanged.
    """
    place, length = _WAVE64.first, struct.calcsize(_WAVE64.head)
    if not re.match(_WAVE64.begins, content, re.DOTALL):
        return content
    while place + length <= len(content):
        name, size = struct.unpack_from(_WAVE64.head, content, place)
        if re.match(_WAVE64.samples, name):
            end = place + size
            return content[:16] + struct.pack("<Q", end) + content[24:end] if length < size < FROM_A_PIPE else content
        place += size + -size % _WAVE64.even if size else len(content)
    return content


def checksum_of_ogg(page: bytes) -> int:
    """Return the CRC-32 of a page of Ogg, without the field of the CRC (RFC 3533, section 6)."""
    counted = (page[:22] + bytes(4) + page[26:]).translate(_REVERSED)  # zlib's CRC is the same with reversed bits
    return int(f"{zlib.crc32(counted, 0xFFFFFFFF) ^ 0xFFFFFFFF:032b}"[::-1], 2)


def _end_of_sphere(content: bytes) -> Optional[int]:
    """Return the end of the samples of a SPHERE file; None if they are packed."""
    head = content[:HEAD]
    found = [
        re.search(rb"\n" + name + rb" -i (\d+)", head)
        for name in (rb"sample_count", rb"channel_count", rb"sample_n_bytes")
    ]
    length = re.match(rb"NIST_1A\r?\n *(\d+)", head)
    if length is None or None in found or b"embedded" in head:
        return None
    samples, channels, width = (int(number[1]) for number in found if number)
    return int(length[1]) + samples * channels * width


def _end_of_voc(content: bytes) -> Optional[int]:
    """Return the end of the first block of samples of a VOC file, which a byte 0 ends; None if there is none."""
    place = int.from_bytes(content[20:22], "little")
    while place + 4 <= len(content) and content[place] != 0:
        kind, size = content[place], int.from_bytes(content[place + 1 : place + 4], "little")
        place += 4 + size
        if kind in _SAMPLES_OF_VOC:
            return place if size else None
    return None


def without_flac_length(content: bytes) -> Tuple[bytes, int]:
    """Return a FLAC file as if it had come through a pipe, and the number of samples in its header; 0 for none.

    Readers read a file of unknown length to its end, and other files only to the announced samples.
    """
    number = int.from_bytes(content[_FLAC_TOTAL], "big")
    total = number & _LONGEST_FLAC
    return content[: _FLAC_TOTAL.start] + (number - total).to_bytes(8, "big") + content[_FLAC_TOTAL.stop :], total


def samples_of_mp3(content: bytes) -> int:
    """Return the minimum number of samples in the frames of an MP3 file, counted one by one."""
    place = frames = samples = 0
    if content.startswith(b"ID3") and len(content) >= 10:
        place = 10 + sum((byte & 0x7F) << 7 * power for power, byte in enumerate(reversed(content[6:10])))
    while place + 4 <= len(content):
        head = int.from_bytes(content[place : place + 4], "big")
        version, layer, kbits, rate = head >> 19 & 3, head >> 17 & 3, head >> 12 & 15, head >> 10 & 3
        if head >> 21 != 0x7FF or version == 1 or layer != 1 or kbits in (0, 15) or rate == 3:
            break
        granules = 2 if version == 3 else 1
        bits = 1000 * _KBITS[version][kbits]
        place += 72 * granules * bits // _RATES[version][rate] + (head >> 9 & 1)
        frames, samples = frames + 1, samples + 576 * granules
    return samples - _SPARE * samples // frames if frames > _SPARE else 0
