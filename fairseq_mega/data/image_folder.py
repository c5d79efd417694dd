"""Images in a folder per class, decoded by PIL when they are used."""

import contextlib
import logging
import os
from pathlib import Path
from typing import Any

import numpy as np

from .class_folders import FileKind, class_files, class_names, listed

logger = logging.getLogger(__name__)

PICTURES = FileKind("images", (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".webp"))


def read_image(path: Path) -> Any:
    """Read a file as an image of PIL, in RGB, turned upright by its EXIF orientation.

    Transparent pixels are laid over white. Of several frames only the first is read.

    Raises:
        ValueError: if the file cannot be decoded, has numbers that PIL cannot scale to 8 bits, or shows one colour only
            because of the reading.
    """
    from PIL import Image, ImageOps

    try:
        with Image.open(path) as image:
            if image.mode[0] in "IF":  # PIL would cut off numbers above 255
                raise ValueError(f"{image.format} of mode {image.mode} is not read: convert the images to 8 bits")
            image.load()
            with contextlib.suppress(Exception):  # damaged EXIF is ignored
                ImageOps.exif_transpose(image, in_place=True)
            seen = image.convert("RGBA" if image.has_transparency_data else "RGB")
            if seen.mode == "RGBA":
                seen = Image.alpha_composite(Image.new("RGBA", seen.size, "white"), seen).convert("RGB")
            showed_more = image.getcolors(1) is None or getattr(image, "is_animated", False)
            if showed_more and seen.getcolors(1) is not None:
                raise ValueError("its first frame, or what is left over white, has one colour")
            return seen
    except Exception as error:  # PIL's readers raise nearly everything on damaged files
        raise ValueError(f"{path} cannot be decoded ({error}): replace or remove it") from error


def split_folder(data: Path, split: str) -> Path:
    """Return the folder of a split, which may not exist; ``val`` if ``valid`` does not exist."""
    is_short = split == "valid" and not (data / split).is_dir() and (data / "val").is_dir()
    return data / ("val" if is_short else split)


def check_same_classes(folder: Path, other: Path) -> None:
    """Raise a ValueError unless both folders have the same classes."""
    unlike = sorted({*class_names(folder)} ^ {*class_names(other)})
    if unlike:
        raise ValueError(f"{folder} and {other} must have the same classes, and only one has {listed(unlike)}")


class ImageFolder:
    """Images ``folder/CLASS/FILE``, with classes numbered in the order of their names.

    Each folder is listed once, and files with the ending of an image are opened only when they are used. The log counts
    ignored files.

    Args:
        folder: folder with one folder per class.

    Attributes:
        classes: names of the classes.
        labels: (n,) int64, the class of each image.

    Raises:
        FileNotFoundError: if the folder does not exist.
        ValueError: if there are no classes, or a class has no images.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        found, whole = class_files(folder, PICTURES)
        self.classes = [*found]
        if whole.omitted:
            logger.warning(f"{folder}: {len(whole.files):,} images; ignored: {whole.described()}")
        self.labels = np.repeat(np.arange(len(found)), [len(names) for names in found.values()])
        # one block of memory, which worker processes share
        self._names = np.array([os.fsencode(name) for names in found.values() for name in names])

    def __len__(self) -> int:
        return len(self.labels)

    def path(self, index: int) -> Path:
        """Return the file of an image."""
        return self.folder / self.classes[self.labels[index]] / os.fsdecode(bytes(self._names[index]))

    def __getitem__(self, index: int) -> Any:
        """Return one image of PIL, in RGB; see :func:`read_image`."""
        return read_image(self.path(index))
