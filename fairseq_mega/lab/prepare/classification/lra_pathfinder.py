"""The released images of Pathfinder: PNG files, and tables that list them with labels (Tay et al., 2021)."""

import hashlib
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

import numpy as np

from fairseq_mega.lab.prepare.lra_archive import HARD

FOLDER = "lra_release"
LABEL_FIELD, LEAST_FIELDS = 3, 4


def opener() -> Callable[[Path], Any]:
    """Return the function that opens an image; raise ValueError without Pillow."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ValueError("the released images are PNG files; install their reader: pip install pillow") from error
    return Image.open


def places_of(size: int) -> Tuple[str, ...]:
    """Return the possible places of the images of a size in a folder, which may itself be the folder of the size."""
    name = f"pathfinder{size}"
    return tuple(f"{before}{HARD}" for before in ("", f"{name}/", f"{FOLDER}/{name}/", f"{FOLDER}/{FOLDER}/{name}/"))


class Released:
    """The images of one size in the unpacked archive, in the order of the metadata files' numbers.

    Args:
        root: the folder ``pathfinder<size>``, or a folder that contains it, directly or in ``lra_release``.
        size: pixels of a side.

    Attributes:
        labels: (n,) int64, 0 or 1.

    Raises:
        ValueError: the folder or a table in it is not as released, or Pillow is missing.
    """

    def __init__(self, root: Path, size: int) -> None:
        self._open = opener()
        self.size = size
        self.folder = self._find(root)
        self._digest = hashlib.sha256()
        self._files: List[Path] = []
        labels: List[int] = []
        for table in self._tables():
            for path, label in self._read(table):
                self._files.append(path)
                labels.append(label)
        self.labels = np.array(labels, dtype=np.int64)

    def _find(self, root: Path) -> Path:
        name = f"pathfinder{self.size}"
        tried = [root / place for place in places_of(self.size)]
        for folder in tried if root.name == name else tried[1:]:
            if (folder / "metadata").is_dir():
                return folder
        raise ValueError(f"--archive-dir {root}: {name}/{HARD}/metadata is not there; give the unpacked lra_release")

    def _tables(self) -> List[Path]:
        tables = [path for path in (self.folder / "metadata").glob("*.npy") if path.stem.isdigit()]
        if not tables:
            raise ValueError(f"{self.folder / 'metadata'} holds no table named NUMBER.npy; unpack the archive again")
        folders = {path.name for path in self.folder.glob("imgs/*") if path.is_dir() and path.name.isdigit()}
        for name in sorted(folders.difference(path.stem for path in tables)):
            missing = self.folder / "metadata" / f"{name}.npy"
            raise ValueError(f"{missing} does not exist, and imgs/{name} has images; unpack the archive again")
        return sorted(tables, key=lambda path: int(path.stem))

    def _read(self, table: Path) -> List[Tuple[Path, int]]:
        content = table.read_bytes()  # text, despite the name
        self._digest.update(content)
        rows = []
        for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), start=1):
            fields = line.split()
            if not fields:
                continue
            if len(fields) < LEAST_FIELDS or fields[LABEL_FIELD] not in ("0", "1"):
                raise ValueError(f"{table}: line {number} is {line[:60]!r}; HARD FILE NUMBER LABEL ... is needed")
            rows.append((self.folder / fields[0] / fields[1], int(fields[LABEL_FIELD])))
        return rows

    def image(self, number: int) -> np.ndarray:
        """Return an image, (size, size) uint8; raise ValueError, naming the file, if it cannot be read."""
        path = self._files[number]
        try:
            with self._open(path) as picture:
                image = np.array(picture.convert("L"))
        except (OSError, SyntaxError) as error:
            raise ValueError(f"{path} cannot be read ({error}); unpack the archive again") from error
        if image.shape != (self.size, self.size):
            raise ValueError(f"{path}: {self.size} x {self.size} pixels are needed, found {image.shape}")
        if image.min() == image.max():
            raise ValueError(f"{path} has one shade of grey, and no contour in it; unpack the archive again")
        return image

    def record(self) -> Dict[str, Any]:
        """Return the tables' entry in card.json: the number of images, and the SHA-256 of all tables in order."""
        return {"images": len(self._files), "sha256": self._digest.hexdigest()}
