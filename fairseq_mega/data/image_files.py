"""Read image files of 8 bits by PIL as RGB; other files are refused, not scaled."""

import contextlib
from pathlib import Path
from typing import Any

from .class_folders import FileKind

ENDINGS = (
    *(".apng", ".avif", ".bmp", ".dib", ".gif", ".jfif", ".jp2", ".jpe", ".jpeg", ".jpg", ".pbm", ".pgm"),
    *(".png", ".pnm", ".ppm", ".webp"),
)
PICTURES = FileKind("images", ENDINGS)
CONVERT = "convert all images in the same way to 8 bits, for example with `magick IN -depth 8 OUT.png`"


def read_image(path: Path) -> Any:
    """Read a file as an image of PIL, in RGB, turned upright by its EXIF orientation.

    Transparent pixels are laid over white. Of several frames only the first is read.

    Raises:
        ValueError: if the file cannot be decoded, is a TIFF, has numbers of more than 8 bits, or shows one colour only
            because of the reading.
    """
    from PIL import Image, ImageOps

    try:
        with Image.open(path) as image:
            # PIL reads turned, signed and planar TIFF wrongly, and only the upper half of colours of 16 bits.
            refused = image.format == "TIFF" or image.mode == "F" or image.mode.startswith("I") or _is_cut(image)
            kind = f"{image.format} of mode {image.mode}"
            image.load()
            with contextlib.suppress(Exception):  # damaged EXIF is ignored
                ImageOps.exif_transpose(image, in_place=True)
            is_clear, is_animated = _has_transparency(image), getattr(image, "is_animated", False)
            rgb = _over_white(image) if is_clear else image.convert("RGB")
            vanished = (is_clear or is_animated) and _is_constant(rgb) and (is_animated or not _is_constant(image))
    except Exception as error:  # PIL's readers raise nearly everything on damaged files
        raise ValueError(f"{path} cannot be decoded ({error}): replace or remove it") from error
    if refused:
        raise ValueError(f"{path}: {kind} is not read, or has numbers of more than 8 bits: {CONVERT}")
    if vanished:
        raise ValueError(
            f"{path}: its first frame, or what is left of it over white, has only one colour: replace or remove it"
        )
    return rgb


def _is_cut(image: Any) -> bool:
    """Return whether PIL cuts or scales the numbers of an image, opened but not loaded, to 8 bits."""
    parts = [tile[3] if isinstance(tile[3], tuple) else (tile[3],) for tile in image.tile]
    is_pixmap = image.format == "PPM"
    return any(";16" in str(part[0]) or (is_pixmap and isinstance(part[-1], int) and part[-1] > 255) for part in parts)


def _has_transparency(image: Any) -> bool:
    return image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info


def _over_white(image: Any) -> Any:
    """Convert an image of PIL to RGB, with its transparent parts over white."""
    from PIL import Image

    seen = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", seen.size, "white"), seen).convert("RGB")


def _is_constant(image: Any) -> bool:
    """Return whether all pixels of an image of PIL are the same."""
    extremes = image.getextrema()
    return all(low == high for low, high in (extremes if isinstance(extremes[0], tuple) else (extremes,)))
