"""Pictures: 8 bits become RGB, other files are refused, and none becomes one colour by being read."""

import io
import struct
import zlib
from pathlib import Path
from typing import Any, Callable, Dict

import numpy as np
import pytest
from PIL import Image

from fairseq_mega.data.image_files import read_image

RAMP = np.arange(64).reshape(8, 8)
SHADES = np.round(RAMP * 255 / 63).astype(np.uint8)
WIDE = (RAMP * 65535 // 63).astype(np.uint16)


def png(color: int, rows: np.ndarray) -> bytes:
    """A PNG of 16 bits in colour or with transparency, which PIL cannot write: (H, W, channels)."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    height, width = rows.shape[:2]
    lines = b"".join(b"\0" + row.astype(">u2").tobytes() for row in rows)
    header = struct.pack(">IIBBBBB", width, height, 16, color, 0, 0, 0)
    content = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + content


def saved(image: Any, form: str, **options: Any) -> bytes:
    stream = io.BytesIO()
    (Image.fromarray(image) if isinstance(image, np.ndarray) else image).save(stream, form, **options)
    return stream.getvalue()


def of_mode(mode: str, form: str = "PNG") -> bytes:
    return saved(Image.fromarray(SHADES).convert(mode), form)


def drawing(color: int, background: int = 0) -> bytes:
    """A drawing that only its transparency shows."""
    rows = np.full((8, 8, 4), color, dtype=np.uint8)
    rows[..., 3] = background
    rows[2:4, :, 3] = 255
    return saved(rows, "PNG")


def frames(*shares: float) -> bytes:
    first, *rest = [Image.fromarray((SHADES * share).astype(np.uint8)) for share in shares]
    return saved(first, "GIF", save_all=True, append_images=rest)


READ: Dict[str, Callable[[], bytes]] = {
    "grey": lambda: of_mode("L"),
    "grey with transparency": lambda: of_mode("LA"),
    "colours with transparency": lambda: of_mode("RGBA"),
    "palette": lambda: of_mode("P"),
    "palette with transparency": lambda: saved(
        Image.fromarray(SHADES).convert("RGB").quantize(64), "PNG", transparency=bytes([255] * 64)
    ),
    "GIF": lambda: of_mode("L", "GIF"),
    "the first of several frames": lambda: frames(1, 0.5, 0),
    "CMYK": lambda: saved(Image.fromarray(SHADES).convert("CMYK"), "JPEG", quality=100, subsampling=0),
    "pixmap": lambda: b"P5 8 8 255\n" + SHADES.tobytes(),
}


@pytest.mark.parametrize("name", READ)
def test_what_has_8_bits_is_read(name: str, tmp_path: Path) -> None:
    (tmp_path / "picture").write_bytes(READ[name]())
    image = read_image(tmp_path / "picture")
    assert image.mode == "RGB"
    assert abs(np.asarray(image).astype(int) - SHADES[..., None]).max() <= (2 if name == "CMYK" else 1)


def test_one_bit(tmp_path: Path) -> None:
    Image.fromarray(np.array([[0, 255]], dtype=np.uint8)).convert("1").save(tmp_path / "x.png")
    assert np.asarray(read_image(tmp_path / "x.png"))[0].tolist() == [[0] * 3, [255] * 3]


REFUSED: Dict[str, Callable[[], bytes]] = {
    "grey PNG of 16 bits": lambda: saved(WIDE, "PNG"),
    "colour PNG of 16 bits": lambda: png(2, np.stack([WIDE] * 3, axis=-1)),
    "grey PNG of 16 bits with transparency": lambda: png(4, np.stack([WIDE, np.full_like(WIDE, 65535)], axis=-1)),
    "pixmap of 16 bits": lambda: b"P5 8 8 65535\n" + WIDE.astype(">u2").tobytes(),
    "colour pixmap of 12 bits": lambda: b"P6 8 8 4095\n" + (RAMP * 65).repeat(3).astype(">u2").tobytes(),
    "colour pixmap of 16 bits in digits": lambda: b"P3 8 8 65535\n%s" % b" ".join(b"%d" % n for n in WIDE.repeat(3)),
    "TIFF": lambda: of_mode("L", "TIFF"),
    "TIFF of 16 bits": lambda: saved(WIDE, "TIFF"),
    "TIFF of floats": lambda: saved((RAMP / 63).astype(np.float32), "TIFF"),
    "white on nothing": lambda: drawing(255),
    "nothing but transparent": lambda: saved(np.stack([SHADES] * 3 + [np.zeros((8, 8), np.uint8)], axis=-1), "PNG"),
    "a first frame of one colour": lambda: frames(0, 1),
    "cut off": lambda: of_mode("RGB", "JPEG")[:-200],
    "HEIC": lambda: b"\0\0\0\x18ftypheic" + bytes(99),
    "a page": lambda: b"%PDF-1.7\n",
    "nothing": lambda: b"",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_named(name: str, tmp_path: Path) -> None:
    (tmp_path / "picture.png").write_bytes(REFUSED[name]())
    with pytest.raises(ValueError, match=r"/picture\.png"):
        read_image(tmp_path / "picture.png")


@pytest.mark.parametrize("value", [0, 255])
def test_a_picture_of_one_colour_is_one(value: int, tmp_path: Path) -> None:
    """A picture that was constant before any conversion is data."""
    (tmp_path / "x").write_bytes(saved(np.full((8, 8), value, np.uint8), "PNG"))
    assert np.unique(np.asarray(read_image(tmp_path / "x"))).tolist() == [value]


def test_what_is_transparent_lies_over_white(tmp_path: Path) -> None:
    (tmp_path / "x.png").write_bytes(drawing(0))
    found = np.asarray(read_image(tmp_path / "x.png"))[..., 0]
    assert found[2:4].max() == 0 and found[:2].min() == found[4:].min() == 255


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP"])
def test_pictures_are_upright(orientation: int, form: str, tmp_path: Path) -> None:
    """A bright corner comes back to its place."""
    rows = np.zeros((16, 32, 3), dtype=np.uint8)
    rows[:8, :16] = 255
    turns = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}  # by orientation, the transposition of PIL that it undoes
    image, exif = Image.fromarray(rows), Image.Exif()
    exif[0x0112] = orientation
    stored = image if orientation == 1 else image.transpose(Image.Transpose(turns[orientation]))
    stored.save(tmp_path / "x", form, exif=exif, **({"lossless": True} if form == "WEBP" else {}))
    found = np.asarray(read_image(tmp_path / "x")).astype(int)
    assert found.shape == rows.shape and abs(found - rows).max() <= 8


def test_damaged_exif_turns_nothing(tmp_path: Path) -> None:
    Image.fromarray(SHADES).save(tmp_path / "x.jpg", exif=b"Exif\0\0MM\0*\xff\xff\xff\xff")
    assert read_image(tmp_path / "x.jpg").size == (8, 8)
