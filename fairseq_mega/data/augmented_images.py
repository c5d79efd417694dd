"""Images for training and evaluation: normalised arrays, and transforms by timm, with new random numbers each epoch."""

import contextlib
import random
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import numpy as np
import torch
from torch import Tensor

from fairseq_mega.compat.versions.image_libraries import allow_no_bits, import_timm

from .classified import ClassifiedDataset

# Mean and standard deviation of ImageNet's red, green and blue, on the scale of [0, 1].
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
RANDAUGMENT = "rand-m9-mstd0.5-inc1"  # two operations, magnitude 9 with noise 0.5, in the "increasing" variants
KEPT = 224 / 256  # visible part of the shorter side in evaluation
ROUND = 256  # with repetitions, an epoch has a multiple of this many images


def normalized(image: np.ndarray) -> Tensor:
    """Return an image (H, W, 3) of uint8 as (3, H, W) float32, normalised by ImageNet's mean and deviation."""
    pixels = torch.from_numpy(image).float() / 255
    return ((pixels - torch.tensor(MEAN)) / torch.tensor(DEVIATION)).permute(2, 0, 1).contiguous()


def evaluation_transform(size: int, kept: float = KEPT) -> Any:
    """Return the map from an image of PIL to its centre, (3, size, size) float32.

    The image is resized bicubically and normalised by ImageNet's mean and deviation.

    Args:
        size: height and width.
        kept: ``size`` divided by the shorter side after the resize.
    """
    return _transform(size, is_training=False, crop_pct=kept)


def training_transform(size: int) -> Any:
    """Return the transform of training: random crop, flip, RandAugment and random erasing; result (3, size, size).

    Source: MEGA, Table 11; settings of the published code (XuezheMax/mega-image).
    """
    allow_no_bits()
    erasing = {"re_prob": 0.25, "re_mode": "pixel", "re_count": 1}
    return _transform(size, is_training=True, auto_augment=RANDAUGMENT, **erasing)


def _transform(size: int, **options: Any) -> Any:
    create = import_timm("timm.data").create_transform
    return create(size, interpolation="bicubic", mean=MEAN, std=DEVIATION, **options)


@contextlib.contextmanager
def seeded(*key: int) -> Iterator[None]:
    """Seed the generators of Python, numpy and torch (CPU) within the block, then restore them.

    Args:
        key: whole numbers of at least 0; the seeds depend on all of them.
    """
    python, numpy, tensors = random.getstate(), np.random.get_state(), torch.default_generator.get_state()
    seeds = [int(seed) for seed in np.random.SeedSequence(key).generate_state(3)]
    try:
        random.seed(seeds[0])
        np.random.seed(seeds[1])
        torch.default_generator.manual_seed(seeds[2])  # torch.manual_seed would seed GPUs, too
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.default_generator.set_state(tensors)


class BatchMixing:
    """Mixup or CutMix within a batch, and smoothed targets.

    Every batch is mixed with one proportion. If both kinds are active, each is chosen with probability 1/2.

    Args:
        classes: number of classes.
        mixup: alpha of the Beta distribution of Mixup's proportions, 0 for no Mixup.
        cutmix: alpha of CutMix, 0 for no CutMix.
        smoothing: part of a target's weight that is spread over all classes.

    Source: MEGA, Table 11; Zhang et al., ICLR 2018; Yun et al., ICCV 2019.
    """

    def __init__(self, classes: int, mixup: float, cutmix: float, smoothing: float) -> None:
        self.classes, self.smoothing = classes, smoothing
        self.mixer: Any = None
        if mixup or cutmix:
            rates = {"mixup_alpha": mixup, "cutmix_alpha": cutmix, "prob": 1.0, "switch_prob": 0.5, "mode": "batch"}
            make = import_timm("timm.data").Mixup
            self.mixer = make(**rates, label_smoothing=smoothing, num_classes=classes)

    def __call__(self, images: Tensor, labels: Tensor) -> Tuple[Tensor, Tensor]:
        """Mix a batch with numpy's random generator.

        Args:
            images: (B, 3, H, W); may be overwritten.
            labels: (B,) long.

        Returns:
            The images and the weights of the classes, (B, classes) float32 with rows that sum to one.
        """
        if self.mixer is None:
            apart = torch.nn.functional.one_hot(labels, self.classes).float()
            return images, apart * (1 - self.smoothing) + self.smoothing / self.classes
        count = len(images)
        if count % 2:  # timm mixes only even numbers of images: repeat the last image
            images, labels = torch.cat([images, images[-1:]]), torch.cat([labels, labels[-1:]])
        images, targets = self.mixer(images, labels)
        return images[:count], targets[:count]


class ImageDataset(ClassifiedDataset):
    """Images with a class each, all of one size after the transform; the length of an image is the number of pixels.

    Args:
        images: n images of PIL, or arrays (H, W, 3) of uint8.
        labels: (n,) integers.
        transform: maps an image of PIL to (3, size, size) float32; None: arrays are only normalised.
        size: height and width.
    """

    def __init__(self, images: Any, labels: np.ndarray, transform: Optional[Callable], size: int) -> None:
        super().__init__(labels, np.full(len(images), size * size))
        self.images, self.transform = images, transform

    def source(self, index: int) -> Tensor:
        """Return an image (3, size, size)."""
        image = self.images[index]
        if self.transform is None:
            return normalized(image)
        if isinstance(image, np.ndarray):
            from PIL import Image

            image = Image.fromarray(image)
        return self.transform(image)

    def collate_sources(self, sources: List[Tensor]) -> Dict[str, Tensor]:
        """Return ``images`` (B, 3, size, size)."""
        return {"images": torch.stack(sources)}


def images_per_epoch(count: int, repetitions: int) -> int:
    """Return the number of images of an epoch, counting every repetition.

    With repetitions the number is the largest multiple of 256 up to ``count``, as published, or ``count`` if ``count``
    is below 256. An epoch is about as long as without repetitions.
    """
    return count if repetitions == 1 or count < ROUND else count // ROUND * ROUND


class AugmentedImageDataset(ImageDataset):
    """Training images with a new order and new augmentations in each epoch.

    An epoch contains the first images of a permutation, each ``repetitions`` times in a row. Items are positions in
    this order. Random numbers of an image depend on seed, epoch, image and repetition; random numbers of a batch depend
    on seed, epoch and the items of the batch.

    The order is cut into updates, and the images of an update are distributed over its batches one by one: with at
    least as many batches as repetitions no batch holds an image twice. One GPU, one batch after the other, and several
    GPUs have the same batches and random numbers. fairseq must not shuffle these batches.

    Args:
        images, labels, transform, size: see :class:`ImageDataset`; the transform may be random.
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
        if not shuffle and repetitions > 1:
            raise ValueError("--no-shuffle and --repeated-augmentation: every epoch would have the same part of images")
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
