"""Images of one size with a class each, from a file of numpy."""

from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import numpy as np
import torch

from .classified import ClassifiedDataset

FIRST = 64  # images whose range is looked at
# Mean and standard deviation of ImageNet's red, green and blue, on the scale of [0, 1].
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class ImageArray:
    """Images (n, H, W, 3) of uint8 in a .npy file, mapped into memory.

    Args:
        path: the file.

    Raises:
        FileNotFoundError: if the file does not exist.
        ValueError: if the file holds other data.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        images = self._open()
        if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] != 3:
            raise ValueError(f"{path} holds {images.dtype} {images.shape}: uint8 (n, height, width, 3) is required")
        if len(images) and images[:FIRST].max() <= 1:
            raise ValueError(
                f"{path} holds no numbers above 1, and 255 is white: multiply numbers of 0 to 1 by 255 before saving"
            )
        self.shape: Tuple[int, ...] = images.shape
        self._images: Optional[np.ndarray] = None

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: int) -> np.ndarray:
        """Return one image (H, W, 3)."""
        if self._images is None:
            self._images = self._open()
        return np.array(self._images[index])

    def __getstate__(self) -> Dict[str, Any]:
        return {**self.__dict__, "_images": None}  # a mapped file would be pickled as its contents

    def _open(self) -> np.ndarray:
        if not self.path.is_file():
            raise FileNotFoundError(
                f"{self.path} does not exist: give the folder that holds input/ and label/, or "
                f"train/ and valid/ with a folder per class"
            )
        try:
            found = np.load(self.path, mmap_mode="r", allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise ValueError(
                f"{self.path} is not a file of numpy.save, or is truncated ({error}): get a new copy"
            ) from error
        if not isinstance(found, np.ndarray):
            raise ValueError(
                f"{self.path} is an archive of numpy.savez ({', '.join(found)}): write its images with numpy.save"
            )
        return found


class ImageDataset(ClassifiedDataset):
    """Images with a class each; the length of an image is the number of its pixels.

    Args:
        images: n images of one size.
        labels: (n,) integers.
        order: see :class:`fairseq_mega.data.classified.ClassifiedDataset`.
    """

    def __init__(self, images: ImageArray, labels: np.ndarray, order: Optional[np.ndarray] = None) -> None:
        super().__init__(labels, np.full(len(images), images.shape[1] * images.shape[2]), order)
        self.images = images

    def source(self, index: int) -> np.ndarray:
        """Return an image (H, W, 3) of uint8."""
        return self.images[index]

    def collate_sources(self, sources: List[np.ndarray]) -> Dict[str, torch.Tensor]:
        """Return ``images`` (B, 3, H, W) float32, normalised by ImageNet's mean and deviation."""
        images = torch.from_numpy(np.stack(sources)).float() / 255
        return {"images": ((images - torch.tensor(MEAN)) / torch.tensor(DEVIATION)).permute(0, 3, 1, 2).contiguous()}
