"""Datasets of transformed images: the same in each epoch, or with new random numbers in each epoch."""

from typing import Any, Callable, Dict, List, Optional, Tuple

import numpy as np
import torch

from .classified import ClassifiedDataset
from .image_augmentation import BatchMixing, seeded

ROUND = 256  # with repetitions, an epoch has a multiple of this many images


class TransformedImageDataset(ClassifiedDataset):
    """Images with a class each, all of one size after the transform.

    Args:
        images: n images of PIL, or arrays (H, W, 3) of uint8.
        labels: (n,) integers.
        transform: maps an image of PIL to (3, size, size) float32.
        size: height and width.
        order: see :class:`fairseq_mega.data.classified.ClassifiedDataset`.
    """

    def __init__(
        self, images: Any, labels: np.ndarray, transform: Callable, size: int, order: Optional[np.ndarray] = None
    ) -> None:
        super().__init__(labels, np.full(len(labels), size * size), order)
        self.images, self.transform = images, transform

    def source(self, index: int) -> torch.Tensor:
        """Return an image (3, size, size)."""
        from PIL import Image

        image = self.images[index]
        return self.transform(Image.fromarray(image) if isinstance(image, np.ndarray) else image)

    def collate_sources(self, sources: List[torch.Tensor]) -> Dict[str, torch.Tensor]:
        """Return ``images`` (B, 3, size, size)."""
        return {"images": torch.stack(sources)}


def images_per_epoch(count: int, repetitions: int) -> int:
    """Return the number of images of an epoch, counting every repetition.

    With repetitions the number is the largest multiple of 256 up to ``count``, as published, or ``count`` if ``count``
    is below 256. An epoch is about as long as without repetitions.
    """
    return count if repetitions == 1 or count < ROUND else count // ROUND * ROUND


class AugmentedImageDataset(TransformedImageDataset):
    """Training images with a new order and new augmentations in each epoch.

    An epoch contains the first images of a permutation, each ``repetitions`` times in a row. Items are positions in
    this order. Random numbers of an image depend on seed, epoch, image and repetition; random numbers of a batch depend
    on seed, epoch and the items of the batch.

    The order is cut into updates, and the images of an update are distributed over its batches one by one: with at
    least as many batches as repetitions no batch holds an image twice. One GPU, one batch after the other, and several
    GPUs have the same batches and random numbers. fairseq must not shuffle these batches.

    Args:
        images, labels, transform, size: see :class:`TransformedImageDataset`; the transform may be random.
        seed: seed of all random numbers.
        repetitions: number of times that each image of an epoch occurs in the epoch.
        mixing: mixing of each batch, None for none.
        shuffle: False: images in their order, without repetitions.

    Source: Hoffer et al., CVPR 2020 (repeated augmentation); as in the published code (XuezheMax/mega-image).
    """

    def __init__(
        self,
        images: Any,
        labels: np.ndarray,
        transform: Callable,
        size: int,
        seed: int,
        repetitions: int = 1,
        mixing: Optional[BatchMixing] = None,
        shuffle: bool = True,
    ) -> None:
        super().__init__(images, labels, transform, size)
        assert shuffle or repetitions == 1, "the same images in each epoch"
        count = images_per_epoch(len(labels), repetitions)
        self.sizes, self.order = self.sizes[:count], self.order[:count]
        self.seed, self.repetitions, self.mixing, self.shuffle = seed, repetitions, mixing, shuffle
        self.lanes = 1  # batches of an update, of all processes
        self.set_epoch(1)

    def set_epoch(self, epoch: int) -> None:
        """Draw the order of the images of an epoch."""
        self.epoch = epoch
        count = len(self.labels)
        drawn = np.random.default_rng((self.seed, epoch)).permutation(count) if self.shuffle else np.arange(count)
        self.drawn = drawn[: -(-len(self) // self.repetitions)]

    def __len__(self) -> int:
        return len(self.sizes)

    def image_at(self, place: int) -> Tuple[int, int]:
        """Return the image at a position of the epoch, and the index of its repetition."""
        return int(self.drawn[place // self.repetitions]), place % self.repetitions

    def __getitem__(self, place: int) -> Dict[str, Any]:
        image, repetition = self.image_at(int(place))
        with seeded(self.seed, self.epoch, 0, image, repetition):
            source = self.source(image)
        return {"id": int(place), "source": source, "target": int(self.labels[image])}

    def collater(self, samples: List[Dict[str, Any]]) -> Dict[str, Any]:
        """Return a batch of examples, empty for none; with mixing ``target`` is (B, classes) float32."""
        batch = super().collater(samples)
        if batch and self.mixing is not None:
            with seeded(self.seed, self.epoch, 1, *batch["id"].tolist()):
                images, batch["target"] = self.mixing(batch["net_input"]["images"], batch["target"])
            batch["net_input"]["images"] = images
        return batch

    def batch_by_size(
        self,
        indices: np.ndarray,
        max_tokens: Optional[int] = None,
        max_sentences: Optional[int] = None,
        required_batch_size_multiple: int = 1,
    ) -> List[np.ndarray]:
        """Return batches of all positions, in the order of their distribution over ``lanes``."""
        limits = [len(indices)] + ([max_sentences] if max_sentences else [])
        size = min(limits + ([max_tokens // int(self.sizes[0])] if max_tokens else []))
        update = size * self.lanes
        dealt = (
            indices[start : start + update][lane :: self.lanes]
            for start in range(0, len(indices), update)
            for lane in range(self.lanes)
        )
        return [batch for batch in dealt if len(batch)]
