"""Classification of colour images: arrays of one size, or a folder of image files per class."""

import contextlib
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Iterator, List, Optional

import numpy as np
from fairseq.dataclass import ChoiceEnum
from fairseq.tasks import register_task
from omegaconf import II

from fairseq_mega.compat.files.card import FRAMING, LABELS, Card
from fairseq_mega.data.augmented_images import (
    KEPT,
    AugmentedImageDataset,
    BatchMixing,
    ImageDataset,
    evaluation_transform,
    training_transform,
)
from fairseq_mega.data.class_folders import class_names
from fairseq_mega.data.classified import ClassifiedDataset, read_labels
from fairseq_mega.data.image_folder import ImageFolder, check_same_classes, split_folder
from fairseq_mega.data.pixel_files import map_images

from .classification import ClassificationConfig, ClassificationTask

logger = logging.getLogger(__name__)

WHOLE = 1.0  # replaces KEPT for images in arrays
AugmentationChoice = ChoiceEnum(["none", "randaugment"])


@dataclass
class ImageClassificationConfig(ClassificationConfig):
    """Options of ``--task image-classification``; the five own options affect only training images."""

    augmentation: AugmentationChoice = field(  # type: ignore[valid-type]
        default="none",
        metadata={
            "help": "augmentation of training images; randaugment: the recipe's crop, flip, RandAugment and erasing "
            "(requires timm)"
        },
    )
    repeated_augmentation: int = field(
        default=1, metadata={"help": "N: an epoch contains 1/N of the images, each N times (recipe: 3)"}
    )
    mixup: float = field(default=0.0, metadata={"help": "alpha of Mixup, 0 for none (recipe: 0.8)"})
    cutmix: float = field(default=0.0, metadata={"help": "alpha of CutMix, 0 for none (recipe: 1.0)"})
    label_smoothing: float = field(
        default=0.0, metadata={"help": "weight of the uniform distribution in the target (recipe: 0.1)"}
    )
    update_freq: List[int] = II("optimization.update_freq")


@register_task("image-classification", dataclass=ImageClassificationConfig)
class ImageClassificationTask(ClassificationTask):
    """Classify colour images, normalized with ImageNet's mean and deviation.

    The data folder has one of two forms. Arrays: ``input/{split}.npy``, uint8 (n, S, S, 3), resized and cropped, and
    ``label/{split}.label``, one class per line. Image files: ``{split}/CLASS/FILE``, with classes numbered in the order
    of their names; the folder of the split ``valid`` may be called ``val``. Image files are resized and cropped here: a
    model trained on arrays sees the whole image, another model sees the centre.

    Training images are augmented on request. The random numbers depend on ``--seed``, the epoch and the image, so
    workers and a resumed training repeat them.
    """

    input_type = "image"

    def __init__(self, cfg: Any) -> None:
        super().__init__(cfg)
        self.image_size = 0  # height and width, set from the model

    def learn_from(self, model: Any) -> None:
        """Record the image size and the classes of the model."""
        self.image_size, self.classes = model.image_size, model.classes

    def data_card(self) -> Card:
        """Return the framing, and the labels if classes are folders; all splits have the same classes."""
        first, folder = next(self.sources(), None), self.class_folder()
        classes = {} if folder is None else {LABELS: "\n".join(class_names(folder))}
        return classes if first is None else {**classes, FRAMING: f"{KEPT if first.is_dir() else WHOLE:g}"}

    def kept(self) -> float:
        """Return the visible part of an image's shorter side: of the checkpoint if it stores one, else of the data."""
        return float({**self.data_card(), **self.trained_card}.get(FRAMING, KEPT))

    def labels(self) -> List[str]:
        """Return the names of the classes in the data, else in the checkpoint; empty if neither has names."""
        card = {**self.trained_card, **self.data_card()}
        return card[LABELS].split("\n") if LABELS in card else []

    def class_folder(self) -> Optional[Path]:
        """Return the folder of the first split whose classes are folders, preferably of the training split."""
        return next(filter(Path.is_dir, self.sources()), None)

    def sources(self) -> Iterator[Path]:
        """Yield the array or the class folder of each split, the training split first."""
        data = Path(self.cfg.data)
        others = {*(path.name for path in data.glob("*")), *(path.stem for path in data.glob("input/*.npy"))}
        for split in dict.fromkeys(("train", "valid", "test", *sorted(others))):
            array = data / "input" / f"{split}.npy"
            with contextlib.suppress(OSError, ValueError):  # missing, or without folders
                if array.exists():
                    yield array
                elif class_names(split_folder(data, split)):
                    yield split_folder(data, split)

    def read_split(self, split: str, training: bool) -> ClassifiedDataset:
        """Read a split; see the base class.

        Raises:
            ValueError: also for classes other than the training split's, and for arrays of another size than the
                model's.
        """
        data, size, cfg = Path(self.cfg.data), self.image_size, self.cfg
        array, folder = data / "input" / f"{split}.npy", split_folder(data, split)
        images: Any
        if array.exists() or not folder.is_dir():
            images, labels = map_images(array), read_labels(data / "label" / f"{split}.label")
            transform, kept = None, WHOLE
            if images.shape[1:3] != (size, size):
                raise ValueError(f"{array} holds images {images.shape}, the model reads --image-size {size}")
        else:
            check_same_classes(self.class_folder() or folder, folder)
            images, kept = ImageFolder(folder), self.kept()
            labels, transform = images.labels, evaluation_transform(size, kept)
        mixes, randomly = cfg.mixup or cfg.cutmix or cfg.label_smoothing, str(cfg.augmentation) == "randaugment"
        if not training or not (mixes or randomly or cfg.repeated_augmentation > 1):
            return ImageDataset(images, labels, transform, size)
        assert self.classes is not None, "the model is built first"
        mixing = BatchMixing(self.classes, cfg.mixup, cfg.cutmix, cfg.label_smoothing) if mixes else None
        transform = training_transform(size) if randomly else evaluation_transform(size, kept)
        options = cfg.seed, cfg.repeated_augmentation, mixing, not cfg.no_shuffle
        return AugmentedImageDataset(images, labels, transform, size, *options)

    def order_of(self, dataset: ClassifiedDataset, training: bool) -> np.ndarray:
        """Return the order of the base class; an epoch of augmented images has an order of its own."""
        return dataset.order if isinstance(dataset, AugmentedImageDataset) else super().order_of(dataset, training)

    def get_batch_iterator(self, dataset: ClassifiedDataset, *args: Any, epoch: int = 1, **kwargs: Any) -> Any:
        """Return the base class's iterator; augmented images keep the order of their dataset.

        A thread (--data-buffer-size) does not load augmented images: its random numbers would mix with the training's.
        """
        if not isinstance(dataset, AugmentedImageDataset):
            return super().get_batch_iterator(dataset, *args, epoch=epoch, **kwargs)
        accumulated = list(self.cfg.get("update_freq") or [1])  # missing when a checkpoint is scored
        dataset.lanes = kwargs.get("num_shards", 1) * accumulated[min(epoch, len(accumulated)) - 1]
        kwargs["data_buffer_size"] = 0
        iterator = super().get_batch_iterator(dataset, *args, epoch=epoch, **kwargs)
        iterator.disable_shuffling, iterator.shuffle = True, False
        return iterator
