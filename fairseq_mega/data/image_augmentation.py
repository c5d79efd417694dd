"""Transforms of images and batches for training on ImageNet, all by timm."""

import contextlib
import random
from typing import Any, Iterator, Tuple

import numpy as np
import torch
from torch import Tensor

from fairseq_mega.compat.versions.image_libraries import allow_no_bits, import_timm

from .image_arrays import DEVIATION, MEAN

RANDAUGMENT = "rand-m9-mstd0.5-inc1"  # two operations, magnitude 9 with noise 0.5, in the "increasing" variants
KEPT = 224 / 256  # visible part of the shorter side in evaluation


def evaluation_transform(size: int, kept: float = KEPT, purpose: str = "a folder per class") -> Any:
    """Return the map from an image of PIL to its centre, (3, size, size) float32.

    The image is resized bicubically and normalised by ImageNet's mean and deviation.

    Args:
        size: height and width.
        kept: ``size`` divided by the shorter side after the resize.
        purpose: feature that requires timm, for the message if timm is not installed.
    """
    return import_timm("timm.data", purpose).create_transform(
        size, is_training=False, interpolation="bicubic", mean=MEAN, std=DEVIATION, crop_pct=kept
    )


def training_transform(size: int) -> Any:
    """Return the transform of training: random crop, flip, RandAugment and random erasing; result (3, size, size).

    Source: MEGA, Table 11; settings of the published code (XuezheMax/mega-image).
    """
    purpose = "--augmentation randaugment"
    allow_no_bits(purpose)
    return import_timm("timm.data", purpose).create_transform(
        size,
        is_training=True,
        interpolation="bicubic",
        mean=MEAN,
        std=DEVIATION,
        auto_augment=RANDAUGMENT,
        re_prob=0.25,
        re_mode="pixel",
        re_count=1,
    )


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
            self.mixer = import_timm("timm.data", "--mixup and --cutmix").Mixup(
                mixup_alpha=mixup,
                cutmix_alpha=cutmix,
                prob=1.0,
                switch_prob=0.5,
                mode="batch",
                label_smoothing=smoothing,
                num_classes=classes,
            )

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
