"""Files of pictures as images of 8 bits in RGB: what has a known range is scaled, and what has none is refused."""

import contextlib
import logging
import re
import struct
from pathlib import Path
from typing import Any, Set

import numpy as np

from .class_folders import Wanted
from .file_kinds import HEAD, HEIC, NO_TEXT, ZEROS, FileKind, is_utf8, kind_of

logger = logging.getLogger(__name__)

ENDINGS = (
    *(".apng", ".avif", ".bmp", ".dib", ".gif", ".jfif", ".jp2", ".jpe", ".jpeg", ".jpg", ".pbm", ".pgm"),
    *(".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp"),
)
_UNREADABLE = ("JPEG XL", "Photoshop")
_ORIENTATION, _BITS, _COMPRESSION, _PHOTOMETRIC, _PLANES, _MORE, _SIGNS = 0x0112, 258, 259, 262, 284, 338, 339  # TIFF
_TURNS = {
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}
WIDE = 65_535  # the largest number of 16 bits
_LEAST = 4_096  # of a picture that uses its 16 bits
_MANY, _FEW = 32, 20  # different numbers, and greys that are left of them
_ZEROS = 64  # bytes at the end of a file that no coding leaves there
_DARK = 16_384  # below it are numbers of 14 bits
_FAINT = 8  # shades between which nothing is to be seen
_told: Set[str] = set()  # messages that are logged once


def _is_readable(kind: FileKind) -> bool:
    return kind.group == "picture" and kind is not HEIC and not any(name in kind.name for name in _UNREADABLE)


PICTURES = Wanted("images", ENDINGS, _is_readable)


def read_image(path: Path) -> Any:
    """Read a file as an image of PIL, in RGB, turned upright by its EXIF orientation.

    Numbers of 16 bits are scaled to 8. Transparent pixels are laid over white. The first of several frames is read.

    Raises:
        ValueError: that names the file, if it cannot be decoded, or if its numbers have no known range.
    """
    from PIL import Image

    try:
        with Image.open(path) as image:
            rgb = to_rgb(image)
            _check_end(path, image)
            return _upright(image, rgb)
    except _Unfit as error:
        raise ValueError(f"{path}: {error}") from error
    except Exception as error:  # PIL's readers raise nearly everything on damaged files
        raise ValueError(f"{path} cannot be decoded, {_remedy(path)} ({error})") from error


class _Unfit(ValueError):
    """A picture that can be decoded, but not shown in 8 bits."""


def to_rgb(image: Any) -> Any:
    """An image of PIL in RGB.

    Raises:
        ValueError: if its numbers have no known range, or if nothing of it would be left to see.
    """
    wide = any(re.search(r"(RGB.?|LA|CMYK);16[BLN]", str(tile)) for tile in image.tile)  # PIL reads the upper halves
    _check_samples(image)
    image.load()
    if image.mode == "F" or image.mode.startswith("I"):
        rgb = _from_numbers(image).convert("RGB")
    elif image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        rgb = _over_white(image)
    else:
        rgb = image.convert("RGB")
    if wide:
        _check_upper_halves(image, rgb)
    _check_frames(image, rgb)
    return rgb


def _check_samples(image: Any) -> None:
    """Refuse TIFF that PIL reads wrongly: numbers with a sign, wide ones in planes, bands that may be anything."""
    if image.format != "TIFF":
        return
    bits = max(image.tag_v2.get(_BITS, (1,)))
    if bits <= 8 and 2 in image.tag_v2.get(_SIGNS, ()):
        raise _Unfit("its numbers have a sign, and no known range: save it as PNG, scaled alike with the others")
    if image.mode in ("RGBA", "LA") and not image.tag_v2.get(_MORE):
        raise _Unfit(
            "it has a band besides its colours, not declared as transparency: remove the band, for "
            "example with `magick IN -alpha off OUT.png`"
        )
    if bits > 8 and image.tag_v2.get(_PLANES) == 2 and image.tag_v2.get(_COMPRESSION) == 1:
        raise _Unfit(
            f"it has a plane of {bits} bits for each colour, which cannot be read: convert it, for example with "
            f"`magick IN OUT.png`"
        )


def _check_upper_halves(image: Any, rgb: Any) -> None:
    """Refuse numbers of 16 bits whose upper halves, the only part that is kept, are nearly constant."""
    inks = image.getextrema()
    highest = max(high for _, high in (inks if image.mode == "CMYK" else rgb.getextrema()))
    if highest < _LEAST >> 8 or (image.mode[-1] in "Aa" and inks[-1][1] < _LEAST >> 8):
        raise _Unfit(_unused(f"below {_LEAST}"))
    if 0 < _spread(rgb) < _FAINT // 2:
        raise _Unfit(_unused(f"within {256 * (_spread(rgb) + 1)} of each other"))
    if 0 < highest < _DARK >> 8:
        _tell_dark(image)


def _from_numbers(image: Any) -> Any:
    """An image in 8 bits of numbers of 16 bits."""
    from PIL import Image

    values = np.asarray(image)
    known = ("PNG", "PPM") if image.mode == "I" else ("PNG", "PPM", "TIFF", "JPEG2000")
    if image.mode == "F" or image.format not in known:
        raise _Unfit(
            f"its numbers (mode {image.mode}, from {values.min():g} to {values.max():g}) have no known range: scale "
            f"all pictures alike to 8 or 16 bits, for example with `magick IN -auto-level -depth 8 OUT.png`, which "
            f"stretches each to its own range"
        )
    values = values.astype(np.int64)
    if image.format == "TIFF" and image.tag_v2.get(_PHOTOMETRIC) == 0:
        values = WIDE - values  # zero is white there
    grey = (values * 255 + WIDE // 2) // WIDE
    greys = len(np.unique(grey))
    merged = greys <= _FEW and len(np.unique(values)) >= max(_MANY, 3 * greys)
    merged = merged and np.ptp(np.percentile(values, (1, 99))) < _LEAST  # not so where all is black or white
    if (values.max() < _LEAST or greys == 1 or merged) and values.min() != values.max():
        raise _Unfit(_unused(f"from {values.min()} to {values.max()}"))
    if 0 < values.max() < _DARK:
        _tell_dark(image)
    seen, clear = Image.fromarray(grey.astype(np.uint8)), image.info.get("transparency")
    if clear is None:
        return seen
    return _over_white(Image.merge("LA", (seen, Image.fromarray(np.where(values == clear, 0, 255).astype(np.uint8)))))


def _unused(values: str) -> str:
    return (
        f"its numbers of 16 bits are {values}, where {WIDE} is white, and little of it would be left in 8 bits: scale "
        f"all pictures alike to the whole range, for example those of 12 bits with `magick IN -evaluate multiply 16 "
        f"OUT.png`"
    )


def _over_white(image: Any) -> Any:
    """A picture with its transparent parts laid over white.

    Raises:
        ValueError: if a picture in white would vanish there.
    """
    from PIL import Image

    seen = image.convert("RGBA")
    if seen.getextrema()[3][0] == 255:
        return image.convert("RGB")
    white = Image.new("RGBA", seen.size, "white")
    rgb = Image.alpha_composite(white, seen).convert("RGB")
    before = _spread(seen)
    if before and _spread(rgb) <= min(_FAINT, before // 8):
        raise _Unfit(
            "what is transparent is laid over white, where nothing of this picture is left to see: lay it over another "
            "colour, for example with `magick IN -background black -flatten OUT.png`"
        )
    return rgb


def _spread(image: Any) -> int:
    """Largest difference between two pixels, of one band."""
    return max(high - low for low, high in image.getextrema())


def _check_frames(image: Any, first: Any) -> None:
    """Warn once that of several frames the first is taken; refuse a first one that shows nothing."""
    frames = getattr(image, "n_frames", 1)
    if frames == 1:
        return
    if not _spread(first):
        raise _Unfit(f"the first of its {frames} frames shows nothing but one colour: save another one as a picture")
    _tell_once("frames", image, f"has {frames} frames: of pictures with several the first one is taken")


def _tell_dark(image: Any) -> None:
    dark = f"has numbers of 16 bits below {_DARK}, where {WIDE} is white, and is dark as it is read"
    _tell_once("dark", image, f"{dark}: if such pictures are of 13 or 14 bits, scale all of them alike to 16")


def _tell_once(what: str, image: Any, message: str) -> None:
    if what not in _told:
        _told.add(what)
        logger.warning(f"{getattr(image, 'filename', '') or 'a picture'} {message}")


def _check_end(path: Path, image: Any) -> None:
    """Refuse a picture of which the end is zeros: of some forms PIL shows a part then, and grey in its place."""
    if image.format not in ("JPEG", "MPO", "WEBP", "AVIF"):
        return
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _ZEROS))
        if file.read().strip(b"\0"):
            return
        file.seek(0)
        content = file.read()
    if not content[: _end_of(content)][-_ZEROS:].strip(b"\0"):
        raise _Unfit("it ends in zeros, as what was not copied to its end: get a new copy")


def _end_of(content: bytes) -> int:
    """End of a JPEG, WebP or AVIF within the bytes of its file, by its own markers."""
    if content.startswith(b"\xff\xd8"):
        return content.find(b"\xff\xd9", content.rfind(b"\xff\xda")) % (len(content) + 1)  # -1: all of it
    if content.startswith(b"RIFF"):
        return 8 + int(struct.unpack_from("<I", content, 4)[0])
    end = 0
    while end + 8 <= len(content) and (size := int(struct.unpack_from(">I", content, end)[0])) >= 8:
        end += size
    return end


def _upright(source: Any, image: Any) -> Any:
    """Return the image, turned by the EXIF orientation of its source."""
    from PIL import Image

    orientation = 1
    with contextlib.suppress(Exception):  # damaged EXIF is ignored
        orientation = source.getexif().get(_ORIENTATION, 1)
    turn = _TURNS.get(orientation)
    return image if turn is None else image.transpose(getattr(Image.Transpose, turn))


def _remedy(path: Path) -> str:
    """Advice for a file that cannot be decoded, and its kind."""
    remedy = "replace or remove it"
    with contextlib.suppress(OSError):
        if path.stat().st_size == 0:
            return f"as it is empty: {remedy}"
        with path.open("rb") as file:
            head = file.read(HEAD)
        kind = kind_of(head)
        if kind is None and is_utf8(head):
            return "as it is plain text: give an image in its place, or leave it out"
        if kind is not None and kind is not NO_TEXT and not _is_readable(kind):
            helps = kind.group in ("picture", "packed") or kind is ZEROS
            return f"as it is {kind.name}: {kind.remedy.replace('FILE', str(path)) if helps else remedy}"
    return remedy
