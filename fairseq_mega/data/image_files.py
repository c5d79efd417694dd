"""Read image files as 8-bit RGB: numbers of a known range are scaled, numbers of an unknown range are an error."""

import contextlib
import io
import logging
import re
import struct
import sys
from pathlib import Path
from typing import Any, Callable, List, Set, Tuple

import numpy as np

from .class_folders import Wanted, listed
from .file_kinds import HEAD, HEIC, NO_TEXT, ZEROS, FileKind, is_utf8, kind_of

logger = logging.getLogger(__name__)

ENDINGS = (
    *(".apng", ".avif", ".bmp", ".dib", ".gif", ".jfif", ".jp2", ".jpe", ".jpeg", ".jpg", ".pbm", ".pgm"),
    *(".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp"),
)
LOOKED_AT = 100, 5  # classes, and images of each, that are looked at for one colour
FIRST = 64  # images whose range is looked at
_FAR_FROM_WHITE = 64
AS_FRACTIONS = "255 is white: multiply numbers of 0 to 1 by 255 before they are saved"
_UNREADABLE = ("JPEG XL", "Photoshop")
_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC = 256, 257, 258, 259, 262  # tags of TIFF
_ORIENTATION, _PLANES, _MORE, _SIGNS = 274, 284, 338, 339
_TURNS = {
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}
WIDE = 65_535  # largest number of 16 bits
_LEAST = 4_096  # minimum range of an image that uses its 16 bits: numbers of 10 and 12 bits are below
_MANY, _FEW = 32, 20  # many different numbers that become few greys
_SCALE = (
    "scale all images in the same way to the whole range, for example 12-bit images with `magick IN -evaluate multiply "
    "16 OUT.png`"
)
_ZEROS = 64  # zeros at the end of a file that no format produces
_DARK = 16_384  # 14-bit numbers are below
_FAINT = 8  # difference of shades that is hardly visible
_ARITHMETIC = (b"\xff\xc9", b"\xff\xca")  # markers of JPEG whose data may end early
_RESTARTS = range(0xD0, 0xD8)  # markers of JPEG
_BLOCK = 34  # largest block of a JPEG in pixels, and the neighbours that its colours reach
_told: Set[str] = set()  # messages that were logged


def _is_readable(kind: FileKind) -> bool:
    return kind.group == "picture" and kind is not HEIC and not any(name in kind.name for name in _UNREADABLE)


PICTURES = Wanted("images", ENDINGS, _is_readable)


def read_image(path: Path) -> Any:
    """Read a file as an image of PIL, in RGB, turned upright by its EXIF orientation.

    Numbers of 16 bits are scaled to 8 bits. Transparent pixels are laid over white. Of several frames only the first is
    read.

    Raises:
        ValueError: if the file cannot be decoded, or its numbers have no known range.
    """
    from PIL import Image

    try:
        with Image.open(path) as image:
            rgb = to_rgb(path, image)
            _check_end(path, image)
            return _upright(image, rgb)
    except _Unfit as error:
        raise ValueError(f"{path}: {error}") from error
    except Exception as error:  # PIL's readers raise nearly everything on damaged files
        raise ValueError(f"{path} cannot be decoded, {_remedy(path)} ({error})") from error


class _Unfit(ValueError):
    """Error for an image that can be decoded but not shown in 8 bits."""


def to_rgb(path: Path, image: Any) -> Any:
    """Convert an image of PIL, opened from a file, to RGB.

    Raises:
        ValueError: if its numbers have no known range, or the result would show nothing.
    """
    wide = any(re.search(r"(RGB.?|LA|CMYK);16[BLN]|'ppm', .*'RGB', 65535", str(tile)) for tile in image.tile)
    _check_samples(image)
    _scale_transparent_shade(image)
    if image.format == "TIFF" and image.size != (image.tag_v2[_WIDTH], image.tag_v2[_HEIGHT]):
        image.filename = ""  # else PIL maps the file by the size after a quarter turn, and the pixels are noise
    image.load()
    if image.mode == "F" or image.mode.startswith("I"):
        rgb = _from_numbers(image).convert("RGB")
    elif image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        rgb = _over_white(image)
    else:
        rgb = image.convert("RGB")
    if wide:
        _check_wide(path, image, rgb)
    _check_frames(image, rgb)
    return rgb


def _check_samples(image: Any) -> None:
    """Raise _Unfit for TIFF that PIL reads wrongly: signed numbers, 16-bit planes, undeclared bands."""
    if image.format != "TIFF":
        return
    bits = max(image.tag_v2.get(_BITS, (1,)))
    if bits <= 8 and 2 in image.tag_v2.get(_SIGNS, ()):
        raise _Unfit("its numbers are signed, without a known range: save all images as PNG with the same scale")
    if image.mode in ("RGBA", "LA") and not image.tag_v2.get(_MORE):
        raise _Unfit(
            "it has an extra band that is not declared as transparency: remove the band, for example with "
            "`magick IN -alpha off OUT.png`"
        )
    if bits > 8 and image.tag_v2.get(_PLANES) == 2 and image.tag_v2.get(_COMPRESSION) == 1:
        raise _Unfit(
            f"it has a plane of {bits} bits for each colour, which is not supported: convert the image, for example "
            f"with `magick IN OUT.png`"
        )


def _scale_transparent_shade(image: Any) -> None:
    """Scale the transparent shade of a PNG of fewer than 8 bits like its pixels, which PIL does not do.

    Raises:
        ValueError: for a transparent colour of 16 bits, which PIL compares with the upper bytes of the pixels.
    """
    coded = {str(tile[3]) for tile in image.tile}
    if image.format != "PNG" or "transparency" not in image.info:
        return
    if "RGB;16B" in coded:
        raise _Unfit(
            "it has a transparent colour of 16 bits, which is not supported: convert the image, for example with "
            "`magick IN -depth 8 OUT.png`"
        )
    for bits in (2, 4):
        if coded == {f"L;{bits}"}:
            image.info["transparency"] *= 255 // ((1 << bits) - 1)


def _check_wide(path: Path, image: Any, rgb: Any) -> None:
    """Raise _Unfit for an image of several bands of 16 bits, of which PIL reads 8, if these bits show little.

    Transparent pixels count as white.
    """
    bands, clear = list(image.split()), image.mode[-1] in "Aa"
    if clear and bands.pop().getextrema()[1] < _LEAST >> 8:
        raise _Unfit(_unused(f"below {_LEAST}"))
    if all(_may_merge(np.array(band.histogram())) for band in bands):  # others show more
        numbers = _wide_numbers(path)
        if clear:
            numbers = np.where(numbers[..., -1:] > WIDE // 2, numbers[..., :-1], WIDE)
        different = [band for band in np.moveaxis(numbers, -1, 0) if np.ptp(band)]
        if different and all(map(_shows_little, different)):
            raise _Unfit(_unused(f"from {numbers.min()} to {numbers.max()}"))
        merged = list(map(_merged, different))
        if merged and all(merged):
            _tell_merged(image, *max(merged))
    highest = max(high for _, high in (image if image.mode == "CMYK" else rgb).getextrema())
    if 0 < highest < _DARK >> 8:
        _tell_dark(image)


def _wide_numbers(path: Path) -> np.ndarray:
    """Return the numbers (H, W, bands), int64, of an image of several bands of 16 bits."""
    from PIL import Image

    bytes_of: List[np.ndarray] = []
    for order in "BL":  # PIL keeps the first byte of each number, then the second
        with Image.open(path) as image:
            forms = str(image.tile)
            image.tile = [_in_order(order, tile) for tile in image.tile]
            bytes_of.append(np.asarray(image).astype(np.int64))
    first, second = bytes_of
    if "LA;16B" in forms:  # PIL cannot choose the byte: it reads the four bytes of a pixel as four bands
        first, second = first[..., ::2], second[..., 1::2]
    if ";16L" in forms or (";16N" in forms and sys.byteorder == "little"):
        first, second = second, first
    return 256 * first + second


def _in_order(order: str, tile: Any) -> Any:
    """Return a tile of PIL, of numbers of 16 bits, whose decoder keeps the upper byte by this order of bytes."""
    decoder, extents, offset, args = tile
    mode, *rest = (args,) if isinstance(args, str) else args
    if decoder == "ppm":
        decoder, mode, rest = "raw", "RGB;16B", [0, 1]
    mode = "RGBA" if mode == "LA;16B" else mode[:-1] + order
    return getattr(tile, "_make", tuple)((decoder, extents, offset, (mode, *rest)))  # a tuple before Pillow 11


def _from_numbers(image: Any) -> Any:
    """Return an 8-bit image of 16-bit numbers."""
    from PIL import Image

    values = np.asarray(image)
    known = ("PNG", "PPM") if image.mode == "I" else ("PNG", "PPM", "TIFF", "JPEG2000")
    if image.mode == "F" or image.format not in known:
        raise _Unfit(
            f"its numbers (mode {image.mode}, from {values.min():g} to {values.max():g}) have no known range: scale "
            f"all images in the same way to 8 or 16 bits, or each image to its own range with `magick IN -auto-level "
            f"-depth 8 OUT.png`"
        )
    values = values.astype(np.int64)
    if image.format == "TIFF" and image.tag_v2.get(_PHOTOMETRIC) == 0:
        values = WIDE - values  # zero is white
    if _shows_little(values):
        raise _Unfit(_unused(f"from {values.min()} to {values.max()}"))
    grey, merged = _in_8_bits(values), _merged(values)
    if merged:
        _tell_merged(image, *merged)
    if 0 < values.max() < _DARK:
        _tell_dark(image)
    seen, clear = Image.fromarray(grey.astype(np.uint8)), image.info.get("transparency")
    if clear is None:
        return seen
    return _over_white(Image.merge("LA", (seen, Image.fromarray(np.where(values == clear, 0, 255).astype(np.uint8)))))


def _in_8_bits(values: np.ndarray) -> np.ndarray:
    return (values * 255 + WIDE // 2) // WIDE


def _shows_little(values: np.ndarray) -> bool:
    """Return whether 8 bits show little of different numbers (H, W) of 16 bits.

    Numbers below 4,096 show little, and numbers of one shade. Others show little if at least 32 of them, three to a
    shade or more, become at most 20 shades, and 98 % of the pixels are within 4,096 of each other.
    """
    if values.min() == values.max():
        return False
    count = len(np.unique(_in_8_bits(values)))
    if values.max() < _LEAST or count == 1:
        return True
    if count > _FEW or len(np.unique(values)) < max(_MANY, 3 * count):
        return False
    return bool(np.ptp(np.percentile(values, (1, 99))) < _LEAST)


def _merged(values: np.ndarray) -> Tuple[int, ...]:
    """Return how many numbers of 16 bits become how many shades, if these are few in most of an image; else nothing.

    Shades of a single number lose nothing and do not count: masks, scale bars, invalid depths.
    """
    pixels = np.bincount(values.ravel(), minlength=WIDE + 1)
    shade_of = _in_8_bits(np.arange(WIDE + 1))
    numbers = np.bincount(shade_of[pixels > 0], minlength=256)
    shades = np.bincount(shade_of, weights=pixels, minlength=256) * (numbers > 1)
    common = np.argsort(-shades)[: _shades_of_most(shades)]
    found = int(numbers[common].sum())
    return (found, len(common)) if len(common) <= _FEW and found >= max(_MANY, 3 * len(common)) else ()


def _shades_of_most(pixels: np.ndarray) -> int:
    """Return in how many shades, with these numbers of pixels, nine tenths of the pixels are."""
    covered = np.cumsum(np.sort(pixels)[::-1])
    return int(np.searchsorted(covered, 0.9 * covered[-1])) + 1


def _may_merge(pixels: np.ndarray) -> bool:
    """Return whether an image with these pixels of each upper byte may be one of :func:`_merged`."""
    others = np.where(np.arange(256) == pixels.argmax(), 0, pixels)  # the most frequent one may be a single number
    return min(_shades_of_most(pixels), _shades_of_most(others)) <= _FEW


def _tell_merged(image: Any, numbers: int, shades: int) -> None:
    _tell_once(
        "merged",
        image,
        f"has {numbers:,} different numbers of 16 bits that become {shades} of 8 bits: if their differences "
        f"matter, {_SCALE}",
    )


def _unused(values: str) -> str:
    return f"its numbers of 16 bits are {values}, where {WIDE} is white, so 8 bits would show little: {_SCALE}"


def _over_white(image: Any) -> Any:
    """Lay the transparent parts of an image over white.

    Raises:
        ValueError: if the image would vanish on white.
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
            "transparent parts are laid over white, on which this image is invisible: lay the image over another "
            "colour, for example with `magick IN -background black -flatten OUT.png`"
        )
    return rgb


def has_one_colour(image: Any) -> bool:
    """Return whether the pixels of an image of PIL in RGB, or of an array (H, W, 3), are the same or hardly differ."""
    return _spread(image) <= _FAINT


def warn_of_dark_images(
    where: object, labels: np.ndarray, image: Callable[[int], Any], names: Callable[[int], Tuple[str, object]]
) -> None:
    """Warn of the first classes whose first images all have nearly one colour, or of small numbers in all classes.

    Args:
        where: folder or file of the images.
        labels: (n,) the class of each image.
        image: returns an image by its number; a ValueError or OSError, as of a broken file, ends the look at its class.
        names: returns the names of an image's class and of the image.
    """
    classes, images = LOOKED_AT
    empty, largest = [], 0

    def shows_nothing(pixels: Any) -> bool:
        nonlocal largest
        largest = max(largest, largest_number(pixels))
        return has_one_colour(pixels)

    for number in np.unique(labels)[:classes]:
        places = np.flatnonzero(labels == number)[:images].tolist()
        with contextlib.suppress(ValueError, OSError):
            if all(shows_nothing(image(place)) for place in places):
                empty.append(names(places[0]))
    if empty:
        logger.warning(
            f"{where}: the first images of {listed([name for name, _ in empty])} have nearly one colour, such as "
            f"{empty[0][1]} ({AS_FRACTIONS})"
        )
    elif largest and (note := small_numbers(largest)):  # images were read
        logger.warning(f"{where}: its first images have {note}")


def small_numbers(largest: int) -> str:
    """Return a note on images whose largest number is far from white, as of numbers of 0 to 15; else nothing."""
    if largest >= _FAR_FROM_WHITE:
        return ""
    return (
        f"no number above {largest}, and 255 is white: multiply the numbers of all images by the same number, unless "
        f"they should be dark"
    )


def largest_number(image: Any) -> int:
    """Return the largest number of an image of PIL, or of an array of images."""
    if isinstance(image, np.ndarray):
        return int(image.max(initial=0))
    return max(high for _, high in image.getextrema())


def _spread(image: Any) -> int:
    """Return the largest difference between two pixels in a band."""
    if isinstance(image, np.ndarray):
        return int(np.ptp(image, axis=(0, 1)).max())
    return max(high - low for low, high in image.getextrema())


def _check_frames(image: Any, first: Any) -> None:
    """Warn once that only the first of several frames is read; raise _Unfit if that frame shows nothing."""
    frames = getattr(image, "n_frames", 1)
    if frames == 1:
        return
    if not _spread(first):
        raise _Unfit(f"the first of its {frames} frames has only one colour: save another frame as an image")
    _tell_once("frames", image, f"has {frames} frames: only the first frame of an image is read")


def _tell_dark(image: Any) -> None:
    dark = f"has numbers of 16 bits below {_DARK}, where {WIDE} is white, so the image is dark"
    _tell_once("dark", image, f"{dark}: if the images have 13 or 14 bits, scale all of them in the same way to 16")


def _tell_once(what: str, image: Any, message: str) -> None:
    if what not in _told:
        _told.add(what)
        logger.warning(f"{getattr(image, 'filename', '') or 'a picture'} {message}")


def _check_end(path: Path, image: Any) -> None:
    """Raise _Unfit for an image that ends in zeros: PIL would replace the missing part by grey, or read the zeros."""
    if image.format not in ("JPEG", "MPO", "WEBP", "AVIF", "PNG"):
        return
    zeros = 8 if image.format == "PNG" else _ZEROS  # an end without its marker is enough
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - zeros))
        if file.read().strip(b"\0"):
            return
        file.seek(0)
        content = file.read()
    if not content[: _end_of(content)][-zeros:].strip(b"\0"):
        raise _Unfit("it ends in zeros, like an incomplete copy: get a new copy")


def check_whole(path: Path) -> None:
    """Raise a ValueError for a JPEG whose data end before the picture does, though a marker says that it is whole.

    PIL fills the rest with one colour. Further data before the end marker change the rest, and never a whole picture.
    A block at the end may be incomplete.
    """
    from PIL import Image, ImageChops

    content = path.read_bytes()
    if not content.startswith(b"\xff\xd8") or any(marker in content for marker in _ARITHMETIC):
        return
    more = b"".join(bytes(range(0xFF)) * 32 + bytes((0xFF, restart)) for restart in _RESTARTS)
    end = _end_of(content)
    with Image.open(path) as image, Image.open(io.BytesIO(content[:end] + more + content[end:])) as longer:
        try:
            box = ImageChops.difference(image, longer).getbbox() or (0, 0, 0, 0)
        except OSError:
            box = (0, 0, *image.size)
    if max(box[2] - box[0], box[3] - box[1]) > _BLOCK:
        raise ValueError(f"{path} is cut off or damaged: its data end before the picture does: get a new copy")


def _end_of(content: bytes) -> int:
    """Return the end of a JPEG, PNG, WebP or AVIF within the bytes of its file, by the markers of the format."""
    if content.startswith(b"\xff\xd8"):
        return content.find(b"\xff\xd9", content.rfind(b"\xff\xda")) % (len(content) + 1)  # -1: all of it
    if content.startswith(b"\x89PNG"):
        return content.rfind(b"IEND") % (len(content) + 1)  # -1: all of it
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
    """Return the remedy for a file that cannot be decoded, and its kind if known."""
    remedy = "replace or remove it"
    with contextlib.suppress(OSError):
        if path.stat().st_size == 0:
            return f"because it is empty: {remedy}"
        with path.open("rb") as file:
            head = file.read(HEAD)
        kind = kind_of(head)
        if kind is None and is_utf8(head):
            return "because it is plain text: replace it by an image, or remove it"
        if kind is not None and kind is not NO_TEXT and not _is_readable(kind):
            helps = kind.group in ("picture", "packed") or kind is ZEROS
            return f"because it is {kind.name}: {kind.remedy.replace('FILE', str(path)) if helps else remedy}"
    return remedy
