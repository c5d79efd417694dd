"""Pictures that are not 8 bits of RGB: scaled where their range is known, refused where it is not, never one colour."""

import io
import logging
import struct
import zlib
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple

import numpy as np
import pytest
from PIL import Image, features

from fairseq_mega.data import image_files
from fairseq_mega.data.image_files import check_whole, read_image

RAMP = np.arange(64, dtype=np.int64).reshape(8, 8)  # from black to white, once it is scaled
WANTED = np.round(RAMP * 255 / 63)


def png(color: int, rows: np.ndarray, bits: int = 16, clear: Optional[Tuple[int, ...]] = None) -> bytes:
    """A PNG of 16 bits in colour, or of few bits, which PIL cannot write: (H, W, channels)."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    height, width = rows.shape[:2]
    numbers = rows.reshape(height, -1, 1).astype(">u2").view(np.uint8)
    coded = np.packbits(np.unpackbits(numbers, axis=2)[..., -bits:].reshape(height, -1), axis=1)
    lines = b"".join(b"\0" + row.tobytes() for row in coded)
    header = struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, 0)
    shade = b"" if clear is None else chunk(b"tRNS", struct.pack(f">{len(clear)}H", *clear))
    content = chunk(b"IHDR", header) + shade + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + content


def saved(array: np.ndarray, form: str, **options: Any) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(array).save(stream, form, **options)
    return stream.getvalue()


def of_mode(mode: str, form: str) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(WANTED.astype(np.uint8)).convert(mode).save(stream, form)
    return stream.getvalue()


def pixmap(largest: int, values: np.ndarray) -> bytes:
    return b"P5 8 8 %d\n" % largest + values.astype(">u2").tobytes()


def palette_with_transparency() -> bytes:
    image = Image.fromarray(WANTED.astype(np.uint8)).convert("RGB").quantize(64)
    stream = io.BytesIO()
    image.save(stream, "PNG", transparency=bytes([255] * 64))
    return stream.getvalue()


def strokes(color: int, background: int = 0) -> bytes:
    """A drawing that only its transparency shows."""
    rows = np.full((8, 8, 4), color, dtype=np.uint8)
    rows[..., 3] = background
    rows[2:4, :, 3] = 255
    return saved(rows, "PNG")


WIDE = RAMP * 65535 // 63
MANY = np.arange(1024).reshape(32, 32)  # different numbers


def tiff(rows: np.ndarray, planar: bool, signs: int = 1, packed: bool = False, shades: int = 2) -> bytes:
    """A TIFF (H, W, channels) of unsigned or signed numbers, its colours side by side or in planes."""
    height, width, channels = rows.shape
    planes = [rows[..., channel] for channel in range(channels)] if planar else [rows]
    parts = [np.ascontiguousarray(plane).tobytes() for plane in planes]
    parts = [zlib.compress(part) for part in parts] if packed else parts
    fields = {
        256: [width],
        257: [height],
        258: [8 * rows.itemsize] * channels,
        259: [8 if packed else 1],
        262: [shades if channels > 1 else 1],
    }
    fields.update({273: [0] * len(parts), 277: [channels], 278: [height], 279: [len(part) for part in parts]})
    fields.update({284: [2 if planar else 1], 339: [signs] * channels})
    begin = 8 + 2 + 12 * len(fields) + 4
    behind = begin + sum(4 * len(values) for values in fields.values() if len(values) > 1)
    fields[273] = [behind + sum(map(len, parts[:number])) for number in range(len(parts))]
    entries, more = b"", b""
    for tag, values in sorted(fields.items()):
        word = values[0] if len(values) == 1 else begin + len(more)
        entries += struct.pack("<HHII", tag, 4, len(values), word)
        more += struct.pack(f"<{len(values)}I", *values) if len(values) > 1 else b""
    return b"II*\0\x08\0\0\0" + struct.pack("<H", len(fields)) + entries + bytes(4) + more + b"".join(parts)


def noise(form: str, kept: float = 1.0, **options: Any) -> bytes:
    """A picture of which only a part was copied, and zeros stand in place of the others; or zeros follow it."""
    content = saved(np.random.default_rng(0).integers(0, 255, (99, 99, 3), np.uint8), form, **options)
    part = content[: int(kept * len(content))]
    return part + bytes(len(content) - len(part) or 999)


def blocks() -> bytes:
    """A PNG of single colours in squares: the decoder reads zeros in place of its data as pixels."""
    return saved(np.kron(RAMP * 4 % 251, np.ones((12, 12))).astype(np.uint8), "PNG")


def glyph(color: int, alpha: np.ndarray) -> np.ndarray:
    return np.stack([np.full_like(alpha, color)] * 3 + [alpha], axis=-1)


SCALED: Dict[str, Callable[[], bytes]] = {
    "grey PNG of 16 bits": lambda: saved(WIDE.astype(np.uint16), "PNG"),
    "grey TIFF of 16 bits": lambda: saved(WIDE.astype(np.uint16), "TIFF"),
    "big-endian TIFF of 16 bits": lambda: saved(WIDE.astype(">u2"), "TIFF"),
    "TIFF of 16 bits, zero is white": lambda: saved((65535 - WIDE).astype(np.uint16), "TIFF", tiffinfo={262: 0}),
    "pixmap of 16 bits": lambda: pixmap(65535, WIDE),
    "pixmap of 12 bits": lambda: pixmap(4095, RAMP * 65),
    "colour PNG of 16 bits": lambda: png(2, np.stack([WIDE] * 3, axis=-1)),
    "grey PNG of 16 bits with transparency": lambda: png(4, np.stack([WIDE, np.full_like(WIDE, 65535)], axis=-1)),
    "grey": lambda: of_mode("L", "PNG"),
    "grey with transparency": lambda: of_mode("LA", "PNG"),
    "palette": lambda: of_mode("P", "PNG"),
    "palette with transparency": palette_with_transparency,
    "GIF": lambda: of_mode("L", "GIF"),
    "colour pixmap of 16 bits in digits": lambda: b"P3 8 8 65535\n%s" % b" ".join(b"%d" % n for n in WIDE.repeat(3)),
    "colour TIFF of 16 bits": lambda: tiff(np.stack([WIDE.astype("<u2")] * 3, axis=-1), False),
    "colour TIFF of 8 bits in planes": lambda: tiff(np.stack([WANTED.astype(np.uint8)] * 3, axis=-1), True),
    "CMYK": lambda: of_mode("CMYK", "TIFF"),
    "TIFF with transparency": lambda: of_mode("RGBA", "TIFF"),
    "grey TIFF with transparency": lambda: of_mode("LA", "TIFF"),
}


@pytest.mark.parametrize("name", SCALED)
def test_what_has_a_known_range_is_scaled(name: str, tmp_path: Path) -> None:
    (tmp_path / "picture").write_bytes(SCALED[name]())
    image = read_image(tmp_path / "picture")
    assert image.mode == "RGB"
    found = np.asarray(image).astype(np.int64)
    assert abs(found - WANTED[..., None]).max() <= 1, found[..., 0]


def test_one_bit(tmp_path: Path) -> None:
    Image.fromarray(np.array([[0, 255]], dtype=np.uint8)).convert("1").save(tmp_path / "x.png")
    assert np.asarray(read_image(tmp_path / "x.png"))[0].tolist() == [[0] * 3, [255] * 3]


WHOLE = ("JPEG", "PNG", "WEBP", *(["AVIF"] if features.check("avif") else []))


@pytest.mark.parametrize("form", WHOLE)
def test_zeros_behind_a_whole_picture_are_none_of_it(form: str, tmp_path: Path) -> None:
    (tmp_path / "picture").write_bytes(noise(form))
    assert read_image(tmp_path / "picture").size == (99, 99)


REFUSED: Dict[str, List[Any]] = {
    "12 bits in 16": [lambda: saved((RAMP * 65).astype(np.uint16), "PNG"), "from 0 to 4095, where 65535 is white"],
    "10 bits in 16": [lambda: saved((RAMP * 16).astype(np.uint16), "TIFF"), "multiply 16"],
    "two numbers of 16 bits": [lambda: saved((RAMP % 2 + 40000).astype(np.uint16), "PNG"), "from 40000 to 40001"],
    "colour, 12 bits in 16": [lambda: png(2, np.stack([RAMP * 65] * 3, axis=-1)), "from 0 to 4095, where"],
    "hundreds of numbers within 1024": [lambda: saved((MANY + 30000).astype(np.uint16), "PNG"), "from 30000 to 31023"],
    "colour, within 512": [lambda: png(2, np.stack([MANY // 2 + 30000] * 3, axis=-1)), "from 30000 to 30511, where"],
    "colour and transparency, 12 bits in 16": [
        lambda: png(6, np.stack([RAMP * 65] * 3 + [np.full_like(RAMP, 4095)], axis=-1)),
        "laid over white, on which this image is invisible",
    ],
    "nearly white on nothing": [lambda: saved(glyph(254, WANTED.astype(np.uint8)), "PNG"), "laid over white"],
    "16 bits in planes": [
        lambda: tiff(np.stack([WIDE.astype("<u2")] * 3, axis=-1), True),
        "a plane of 16 bits for each",
    ],
    "a fourth band of any kind": [
        lambda: tiff(np.stack([WANTED.astype(np.uint8)] * 4, axis=-1), False),
        "an extra band",
    ],
    "8 bits with a sign": [lambda: tiff((RAMP - 32).astype(np.int8)[..., None], False, 2), "its numbers are signed"],
    "32 bits": [lambda: saved((RAMP * 1000).astype(np.int32), "TIFF"), "mode I, from 0 to 63000.* no known range"],
    "floats": [lambda: saved((RAMP / 63).astype(np.float32), "TIFF"), "mode F, from 0 to 1.* no known range"],
    "white on nothing": [lambda: strokes(255), "laid over white, on which this image is invisible"],
    "nothing but transparent": [
        lambda: saved(np.stack([WANTED.astype(np.uint8)] * 3 + [np.zeros((8, 8), np.uint8)], axis=-1), "PNG"),
        "laid over white, on which this image is invisible",
    ],
    **{
        f"{form}, zeros at its end": [partial(noise, form, 0.6), "(in zeros, like an incomplete copy|broken data)"]
        for form in WHOLE
    },
    "PNG, zeros in place of pixels": [
        lambda: blocks()[:-80] + bytes(80),
        "in zeros, like an",
    ],
    "HEIC": [lambda: b"\0\0\0\x18ftypheic" + bytes(99), "because it is a picture in HEIC: .*heif-convert"],
    "a page": [lambda: b"%PDF-1.7\n", "because it is a PDF: replace or remove it"],
    "an archive": [lambda: b"PK\x03\x04" + bytes(99), "because it is packed with zip"],
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_none_is_refused(name: str, tmp_path: Path) -> None:
    content, message = REFUSED[name]
    (tmp_path / "picture.png").write_bytes(content())
    with pytest.raises(ValueError, match=rf"picture\.png.*{message}"):
        read_image(tmp_path / "picture.png")


def patched(values: np.ndarray, pixels: int, number: int = 65535) -> np.ndarray:
    """The numbers of a picture, the first of them replaced."""
    return np.where(np.arange(values.size).reshape(values.shape) < pixels, number, values)


def stars() -> np.ndarray:
    """A faint sky with noise, and round stars in a twentieth of it."""
    sky = 1000 + MANY % 40
    far = np.minimum((np.arange(32) - 9) ** 2, (np.arange(32) - 21) ** 2)
    return np.minimum(sky + 64000 * np.exp(-(far[:, None] + far) / 2), 65535).astype(np.int64)


COLOURS = 0.5, 0.8, 1.0  # of a picture whose colours differ
STORED: Dict[str, Callable[[np.ndarray], bytes]] = {
    "grey PNG": lambda values: saved(values.astype(np.uint16), "PNG"),
    "grey TIFF": lambda values: saved(values.astype(np.uint16), "TIFF"),
    "grey pixmap": lambda values: b"P5 32 32 65535\n" + values.astype(">u2").tobytes(),
    "colour PNG": lambda values: png(2, in_colours(values)),
    "colour PNG with transparency": lambda values: png(6, opaque(in_colours(values))),
    "grey PNG with transparency": lambda values: png(4, opaque(values[..., None])),
    "colour TIFF": lambda values: tiff(in_colours(values).astype("<u2"), False),
    "packed TIFF": lambda values: tiff(in_colours(values).astype("<u2"), False, packed=True),
    "TIFF of inks": lambda values: tiff(in_colours(values)[..., [0, 1, 2, 2]].astype("<u2"), False, shades=5),
    "colour pixmap": lambda values: b"P6 32 32 65535\n" + in_colours(values).astype(">u2").tobytes(),
}


def in_colours(values: np.ndarray) -> np.ndarray:
    return np.stack([np.where(values == 65535, values, values * share) for share in COLOURS], axis=-1).astype(np.int64)


def opaque(rows: np.ndarray) -> np.ndarray:
    return np.concatenate([rows, np.full_like(rows[..., :1], 65535)], axis=-1)


FEW_SHADES: Dict[str, np.ndarray] = {
    "12 bits": MANY * 4,
    "12 bits and a hot pixel": patched(MANY * 4, 1),
    "within 1,024": 30000 + MANY,
    "two nearly equal numbers": 30000 + MANY % 2,
}
TOLD: Dict[str, np.ndarray] = {
    "12 bits and a scale bar": patched(MANY * 4, 40),
    "12 bits and two codes": patched(patched(MANY * 4, 40), 20, 60000),
    "10 bits and a bright scale bar": patched(400 + MANY // 5, 40, 60000),
    "10 bits and text with smooth edges": np.where(MANY < 60, 1000 * (MANY + 5), 400 + MANY // 5),
    "depths, most of which are invalid": patched(1000 + MANY * 2, 950),
    "Hounsfield units + 32,768, 0 outside": patched(32768 + MANY % 500, 300, 0),
    "paper and ink with noise": patched(63000 + MANY, 100, 0) + MANY % 50,
    "ink of one number, paper with noise": patched(63000 + MANY, 100, 0),
    "stars": stars(),
}
READ: Dict[str, np.ndarray] = {
    "full range": MANY * 64,
    "full range and a scale bar": patched(MANY * 64, 40),
    "13 bits in the middle": 20000 + MANY * 8,
    "a mask": patched(MANY * 0, 300),
    "a mask of three numbers": patched(patched(MANY * 0, 300), 100, 1000),
    "a mask of 30 numbers": patched(MANY % 30, 300),
    "depths of a wide range": patched(500 + MANY * 10, 300),
    "a photograph with dark parts": np.where(MANY < 500, MANY * 2, MANY * 64),
}


@pytest.mark.parametrize("form", STORED)
@pytest.mark.parametrize("name", [*FEW_SHADES, *TOLD, *READ])
def test_numbers_of_16_bits_that_become_few_shades(
    name: str, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """They are refused where nothing else is in the picture; else they are told, as no more may be meant."""
    monkeypatch.setattr(image_files, "_told", set())
    (tmp_path / "x").write_bytes(STORED[form]({**FEW_SHADES, **TOLD, **READ}[name]))
    if name in FEW_SHADES:
        with pytest.raises(ValueError, match=r"x: its numbers of 16 bits are from .* 8 bits would show little: scale"):
            read_image(tmp_path / "x")
        return
    assert np.ptp(np.asarray(read_image(tmp_path / "x"))) > 8
    told = [message for message in caplog.messages if " of 8 bits: if their differences matter, scale" in message]
    assert len(told) == (name in TOLD)


@pytest.mark.parametrize("pixels", [400, 600])
def test_what_is_transparent_counts_as_white(
    pixels: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Dark colours show a shape on it, and no more."""
    monkeypatch.setattr(image_files, "_told", set())
    rows = opaque(in_colours(1 + MANY * 4))
    rows[np.arange(1024).reshape(32, 32) < pixels] = 0
    (tmp_path / "x").write_bytes(png(6, rows))
    assert np.ptp(np.asarray(read_image(tmp_path / "x"))) > 200
    assert " of 8 bits: if their differences matter" in caplog.text


def test_a_picture_of_one_colour_is_one(tmp_path: Path) -> None:
    """A picture that was constant before any conversion is data."""
    for name, value in (("black", 0), ("dark", 300), ("grey", 40000)):
        (tmp_path / name).write_bytes(saved(np.full((8, 8), value, np.uint16), "PNG"))
        assert np.unique(np.asarray(read_image(tmp_path / name))).tolist() == [round(value / 257)]


def test_a_scan_in_black_and_white_is_read(tmp_path: Path) -> None:
    """Hundreds of numbers of few greys, far apart."""
    (tmp_path / "x").write_bytes(saved(np.where(MANY % 2, 300 + MANY // 4, 64000 + MANY).astype(np.uint16), "PNG"))
    found = np.asarray(read_image(tmp_path / "x"))[..., 0]
    assert found[:, 1::2].max() <= 3 and found[:, ::2].min() >= 249


def test_what_is_transparent_lies_over_white(tmp_path: Path) -> None:
    (tmp_path / "x.png").write_bytes(strokes(0))
    found = np.asarray(read_image(tmp_path / "x.png"))[..., 0]
    assert found[2:4].max() == 0 and found[:2].min() == found[4:].min() == 255


@pytest.mark.parametrize("wide", [np.uint8, np.uint16])
@pytest.mark.parametrize("clear", [0, 200])
def test_a_transparent_shade_lies_over_white(wide: Any, clear: int, tmp_path: Path) -> None:
    shades = np.repeat(np.array([0, 60, 130, 200], wide), 2).reshape(-1, 1).repeat(8, axis=1)
    scale = np.iinfo(wide).max // 255
    (tmp_path / "x.png").write_bytes(saved(shades * scale, "PNG", transparency=clear * scale))
    found = np.asarray(read_image(tmp_path / "x.png"))[..., 0]
    assert np.array_equal(found, np.where(shades == clear, 255, shades))


@pytest.mark.parametrize("bits, clear", [(1, 0), (1, 1), (2, 1), (2, 3), (4, 7), (4, 15), (8, 200)])
def test_a_transparent_shade_of_few_bits(bits: int, clear: int, tmp_path: Path) -> None:
    most = (1 << bits) - 1
    shades = np.arange(64).reshape(8, 8, 1) % (most + 1)
    (tmp_path / "x.png").write_bytes(png(0, shades, bits, (clear,)))
    if bits == 1 and clear == 0:
        with pytest.raises(ValueError, match="on which this image is invisible"):
            read_image(tmp_path / "x.png")
        return
    found = np.asarray(read_image(tmp_path / "x.png"))[..., 0]
    assert np.array_equal(found, np.where(shades == clear, 255, shades * 255 // most)[..., 0])


def test_a_transparent_colour_of_16_bits_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.png").write_bytes(png(2, np.stack([WIDE] * 3, axis=-1), clear=(0x8000, 0x8000, 0x8000)))
    with pytest.raises(ValueError, match=r"x\.png: it has a transparent colour of 16 bits.*magick IN -depth 8"):
        read_image(tmp_path / "x.png")


@pytest.mark.parametrize("most, told", [(16_383, True), (8_191, True), (65_535, False)])
@pytest.mark.parametrize("bands", [1, 3])
def test_numbers_of_14_bits_are_told(
    most: int, told: bool, bands: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Once: they are dark beside others, and may be those of a night."""
    values = np.linspace(0, most, WIDE.size).reshape(WIDE.shape).astype(np.uint16)
    image_files._told.clear()
    caplog.set_level(logging.WARNING)
    for name in ("x.png", "y.png"):
        (tmp_path / name).write_bytes(saved(values, "PNG") if bands == 1 else png(2, np.stack([values] * 3, axis=-1)))
        read_image(tmp_path / name)
    assert ["x.png has numbers of 16 bits below 16384" in message for message in caplog.messages] == [True] * told


def test_the_first_of_several_frames_is_taken(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    frames = [Image.fromarray((WANTED * share).astype(np.uint8)) for share in (1, 0.5, 0)]
    image_files._told.clear()
    caplog.set_level(logging.WARNING)
    for name in ("x.gif", "y.tif"):
        frames[0].save(tmp_path / name, save_all=True, append_images=frames[1:])
        assert np.abs(np.asarray(read_image(tmp_path / name))[..., 0] - WANTED).max() <= 1
    (message,) = caplog.messages
    assert "x.gif has 3 frames" in message and "only the first frame of an image is read" in message
    frames[2].save(tmp_path / "z.gif", save_all=True, append_images=frames[:2])
    with pytest.raises(ValueError, match=r"z\.gif: the first of its 3 frames has only one colour"):
        read_image(tmp_path / "z.gif")


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("form", ["JPEG", "PNG", "TIFF"])
def test_pictures_are_upright(orientation: int, form: str, tmp_path: Path) -> None:
    """Pictures are turned as PIL's own ImageOps turns them."""
    from PIL import ImageOps

    rows = np.zeros((16, 32, 3), dtype=np.uint8)
    rows[:8, :16], rows[8:, 16:] = 255, 128
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / "x"
    Image.fromarray(rows).save(path, form, exif=exif)
    with Image.open(path) as image:
        wanted = np.asarray(ImageOps.exif_transpose(image).convert("RGB"))
    assert (np.asarray(read_image(path)) == wanted).all()
    assert wanted.shape == ((32, 16, 3) if orientation > 4 else (16, 32, 3))


@pytest.mark.parametrize("orientation", [3, 5, 6, 7, 8])
@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16"])
def test_plain_tiff_is_upright(mode: str, orientation: int, tmp_path: Path) -> None:
    rows = (np.arange(16 * 32, dtype=np.uint16) * 128).reshape(16, 32)
    image = Image.fromarray(rows) if mode == "I;16" else Image.fromarray((rows >> 8).astype(np.uint8)).convert(mode)
    exif = Image.Exif()
    exif[0x0112] = orientation
    image.save(tmp_path / "x.tif", exif=exif)
    (image if mode != "CMYK" else image.convert("RGB")).save(tmp_path / "x.png", exif=exif)
    found, wanted = (np.asarray(read_image(tmp_path / f"x.{form}")) for form in ("tif", "png"))
    assert found.shape == wanted.shape and (found == wanted).all()


def test_damaged_exif_turns_nothing(tmp_path: Path) -> None:
    Image.fromarray(WANTED.astype(np.uint8)).save(tmp_path / "x.jpg", exif=b"Exif\0\0MM\0*\xff\xff\xff\xff")
    assert read_image(tmp_path / "x.jpg").size == (8, 8)


JPEGS: List[Dict[str, Any]] = [
    {"quality": 10},
    {"quality": 75, "subsampling": 2},
    {"quality": 100, "subsampling": 0},
    {"quality": 95, "progressive": True},
    {"quality": 75, "optimize": True},
    {"quality": 75, "restart_marker_rows": 1},
    {"quality": 90, "restart_marker_blocks": 3},
]


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
@pytest.mark.parametrize("options", JPEGS)
def test_a_jpeg_that_ends_early_is_told_from_a_whole_one(
    options: Dict[str, Any], mode: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Also from one with a border of one colour, as the lost part has; other bytes may follow the picture."""
    shades = np.random.default_rng(1).integers(0, 256, (20, 25, 3))
    pixels = np.kron(shades, np.ones((10, 10, 1))).astype(np.uint8)
    pixels[120:] = 128
    stream = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(stream, "JPEG", **options)
    content, path = stream.getvalue(), tmp_path / "a.jpg"
    for behind in (b"", bytes(100), b"\xff\xd8\xff\xda more \xff\xd9"):
        path.write_bytes(content + behind)
        check_whole(path)
    path.write_bytes(content[:-2] + b"\0\x12\x34\xff\xd9")  # bytes that no block needs
    check_whole(path)
    for share in (0.45, 0.5, 0.6):
        path.write_bytes(content[: int(share * content.rindex(b"\xff\xd9"))] + b"\xff\xd9")
        read_image(path)
        with pytest.raises(ValueError, match="a.jpg is cut off or damaged: its data end before the picture does"):
            check_whole(path)
    assert capfd.readouterr().err == ""
