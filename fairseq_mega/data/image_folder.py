"""Images in a folder per class, decoded when they are used."""

import logging
import os
from pathlib import Path
from typing import Any, List

import numpy as np

from .class_folders import class_files, class_names, listed
from .image_files import PICTURES, read_image

logger = logging.getLogger(__name__)


def split_folder(data: Path, split: str) -> Path:
    """Return the folder of a split, which may not exist; ``val`` if ``valid`` does not exist."""
    folder, short = data / split, data / "val"
    if split != "valid" or not short.is_dir():
        return folder
    if folder.is_dir():
        logger.warning(f"{folder} is read, {short} is ignored")
    return folder if folder.is_dir() else short


def check_same_classes(folder: Path, other: Path) -> None:
    """Raise a ValueError unless both folders have the same classes."""
    mine, its = set(class_names(folder)), set(class_names(other))
    if mine != its:
        differences = [
            f"only {place} has {listed(sorted(names))}"
            for place, names in ((folder, mine - its), (other, its - mine))
            if names
        ]
        raise ValueError(f"{folder} and {other} must have the same classes: {', '.join(differences)}")


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
        names: List[bytes] = []
        counts = []
        for images in found.values():
            names += map(os.fsencode, images)
            counts.append(len(images))
        self.labels = np.repeat(np.arange(len(counts)), counts)
        self._names = np.array(names)  # one block of memory, which worker processes share

    def __len__(self) -> int:
        return len(self.labels)

    def path(self, index: int) -> Path:
        """Return the file of an image."""
        return self.folder / self.classes[self.labels[index]] / os.fsdecode(bytes(self._names[index]))

    def __getitem__(self, index: int) -> Any:
        """Return one image of PIL, in RGB.

        Raises:
            ValueError: if the file cannot be decoded.
        """
        return read_image(self.path(index))
