"""Grey images with labels in the layout of the image tasks of the published code.

``input/SPLIT.src`` has one image per line, its pixels 0..255 row by row, ``label/SPLIT.label`` one label per line.
"""

from collections import Counter
from pathlib import Path
from typing import Any, Dict, Iterable, NamedTuple

import numpy as np

from fairseq_mega.lab.prepare.progress import Progress, print_line

_TOKENS = [b"%d" % value for value in range(256)]


class ImageSplit(NamedTuple):
    """The images of a split in order, each of dtype uint8 and any shape, and their labels (n,)."""

    images: Iterable[np.ndarray]
    labels: np.ndarray


def image_line(image: np.ndarray) -> bytes:
    """Return the pixels of an image (any shape, uint8) as decimal numbers, row by row, with a line feed."""
    return b" ".join(map(_TOKENS.__getitem__, image.tobytes())) + b"\n"


def write_image_task(folder: Path, splits: Dict[str, ImageSplit]) -> Dict[str, Dict[str, Any]]:
    """Write all splits below ``folder`` and return the counts of each."""
    for name in ("input", "label"):
        (folder / name).mkdir(parents=True)
    statistics = {}
    for split, (images, labels) in splits.items():
        written = pixels = 0
        with open(folder / "input" / f"{split}.src", "wb") as stream:
            for image in Progress(split, "images", len(labels)).follow(images):
                assert image.dtype == np.uint8
                stream.write(image_line(image))
                written += 1
                pixels = image.size
        assert written == len(labels), (split, written, len(labels))
        (folder / "label" / f"{split}.label").write_text("".join(f"{label}\n" for label in labels))
        counts = {str(label): count for label, count in sorted(Counter(labels.tolist()).items())}
        statistics[split] = {"examples": written, "labels": counts, "pixels": pixels}
        print_line(f"{split}: {written} images of {pixels} pixels")
    return statistics
