"""Images in a folder per class, decoded when they are used."""

import os
from pathlib import Path
from typing import Any, List, Sequence

import numpy as np

SUFFIXES = (".bmp", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")


def split_folder(data: Path, split: str) -> Path:
    """Where the classes of a split are folders, if they are; ``val`` where there is no ``valid``."""
    folder = data / split
    return data / "val" if split == "valid" and not folder.is_dir() else folder


def class_names(folder: Path) -> List[str]:
    """Sorted names of the folders in a folder; hidden ones are left out.

    Raises:
        FileNotFoundError: if there is no such folder.
        ValueError: if it holds none.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} does not exist: a folder of images holds a folder per class")
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir())
    if not names:
        raise ValueError(f"{folder} holds no folders: one per class is needed, with its images inside")
    return names


def check_same_classes(folder: Path, other: Path) -> None:
    """Raise a ValueError that names both folders unless they have the same classes."""
    mine, its = set(class_names(folder)), set(class_names(other))
    if mine != its:
        differences = [
            f"only {place} has {_listed(sorted(names))}"
            for place, names in ((folder, mine - its), (other, its - mine))
            if names
        ]
        raise ValueError(f"{folder} and {other} must have the same classes: {', '.join(differences)}")


def _listed(names: Sequence[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


class ImageFolder:
    """Images ``folder/CLASS/FILE``: the classes are numbered in the order of their names.

    Each folder is listed once, and no file is looked at before it is used.

    Args:
        folder: that holds a folder per class.

    Attributes:
        classes: names of the classes.
        labels: (n,) int64, the class of each image.

    Raises:
        FileNotFoundError: if there is no such folder.
        ValueError: if there are no classes, or one without images.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.classes = class_names(folder)
        names: List[bytes] = []
        counts = []
        for name in self.classes:
            with os.scandir(folder / name) as entries:
                found = [entry.name for entry in entries if entry.name.lower().endswith(SUFFIXES)]
            images = sorted(name for name in found if not name.startswith("."))
            if not images:
                raise ValueError(f"{folder / name} holds no images ({', '.join(SUFFIXES)})")
            names += map(os.fsencode, images)
            counts.append(len(images))
        self.labels = np.repeat(np.arange(len(counts)), counts)
        self._names = np.array(names)  # one block of memory, which worker processes share

    def __len__(self) -> int:
        return len(self.labels)

    def path(self, index: int) -> Path:
        """File of an image."""
        return self.folder / self.classes[self.labels[index]] / os.fsdecode(bytes(self._names[index]))

    def __getitem__(self, index: int) -> Any:
        """One image of PIL, in RGB.

        Raises:
            ValueError: that names the file, if it cannot be decoded.
        """
        return read_image(self.path(index))


def read_image(path: Path) -> Any:
    """Read a file as an image of PIL, in RGB.

    Raises:
        ValueError: that names the file, if it cannot be decoded.
    """
    from PIL import Image

    try:
        with Image.open(path) as image:
            return image.convert("RGB")
    except Exception as error:  # PIL's readers raise nearly everything on damaged files
        raise ValueError(f"{path} cannot be decoded, replace or remove it ({error})") from error
