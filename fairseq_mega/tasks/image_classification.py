"""Classification of colour images: arrays of one size, or a folder of image files per class."""

import contextlib
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Iterator, List, Optional, Tuple, Union

import numpy as np
from fairseq.dataclass import ChoiceEnum
from fairseq.tasks import register_task
from omegaconf import II

from fairseq_mega.compat.files.card import FRAMING, LABELS, Card
from fairseq_mega.data.augmented_images import AugmentedImageDataset, TransformedImageDataset
from fairseq_mega.data.class_folders import class_names
from fairseq_mega.data.classified import ClassifiedDataset, check_labels
from fairseq_mega.data.image_arrays import ImageArray, ImageDataset
from fairseq_mega.data.image_augmentation import KEPT, BatchMixing, evaluation_transform, training_transform
from fairseq_mega.data.image_folder import ImageFolder, check_same_classes, split_folder
from fairseq_mega.data.pixel_files import read_labels

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
    train_subset: str = II("dataset.train_subset")
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
        check_options(cfg)
        self.image_size: Optional[int] = None  # set from the model

    def learn_from(self, model: Any) -> None:
        """Record the image size and the classes of the model."""
        self.image_size, self.classes = model.image_size, model.classes

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> ClassifiedDataset:
        """Load a split; its images stay in their files until they are used.

        Raises:
            FileNotFoundError: if the split does not exist.
            ValueError: if a file is broken, files do not fit together or the model, or the folder has no splits.
        """
        data = Path(self.cfg.data)
        array, folder = data / "input" / f"{split}.npy", split_folder(data, split)
        images: Union[ImageArray, ImageFolder]
        if folder.is_dir() and array.exists():
            logger.warning(f"{array} is read, {folder} is ignored")
        if not (folder.is_dir() or (data / "input").is_dir()):
            raise FileNotFoundError(
                f"{data} has no images of the split {split}: give a folder with {split}/CLASS/FILE, which "
                f"fairseq-mega-prepare own-images makes, or with input/{split}.npy and label/{split}.label"
            )
        if folder.is_dir() and not array.exists():
            images, labels = self.read_folder(split, folder)
        else:
            images, labels = self.read_array(split, array)
        in_training = "task_cfg" not in kwargs  # only fairseq-validate passes task_cfg
        if in_training and augments(self.cfg) and split == self.cfg.train_subset:
            self.datasets[split] = self.augmented(images, labels)
        elif isinstance(images, ImageArray):
            self.datasets[split] = ImageDataset(images, labels, self.training_order(len(labels)))
        else:
            size, order = self.size_of_model(), self.training_order(len(labels))
            transform = evaluation_transform(size, self.kept())
            self.datasets[split] = TransformedImageDataset(images, labels, transform, size, order)
        return self.datasets[split]

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

    def size_of_model(self) -> int:
        """Return height and width of the model's images."""
        assert self.image_size is not None, "the model is built first"
        return self.image_size

    def read_folder(self, split: str, folder: Path) -> Tuple[ImageFolder, np.ndarray]:
        """Read images from a folder per class; warn at the training if those of the test are other classes.

        Raises:
            ValueError: if the classes differ from the training split's, or in number from the model's.
        """
        first = self.class_folder()
        if first is not None and folder != first:
            check_same_classes(first, folder)
        elif first is not None and first.with_name("test") in self.sources():
            try:
                check_same_classes(first, first.with_name("test"))
            except ValueError as error:
                logger.warning(f"{error}; the test images cannot be scored")
        images = ImageFolder(folder)
        if self.classes is not None and len(images.classes) != self.classes:
            raise ValueError(
                f"{folder} has {len(images.classes)} classes, the model has {self.classes}: give --image-class-num "
                f"{len(images.classes)}"
            )
        logger.info(f"{split}: {len(images):,} images of {len(images.classes):,} classes in {folder}")
        return images, images.labels

    def read_array(self, split: str, source: Path) -> Tuple[ImageArray, np.ndarray]:
        """Read images of one size from a file of numpy.

        Raises:
            FileNotFoundError: if the file does not exist.
            ValueError: if a file is broken, or files do not fit together or the model.
        """
        label_path = Path(self.cfg.data) / "label" / f"{split}.label"
        images, labels = ImageArray(source), read_labels(label_path)
        if len(images) != len(labels):
            raise ValueError(
                f"{source} has {len(images)} images, {label_path} has {len(labels)} lines: they must belong together"
            )
        check_labels(labels, self.classes, str(label_path), option="--image-class-num")
        height, width = images.shape[1:3]
        if self.image_size is not None and (height, width) != (self.image_size, self.image_size):
            raise ValueError(
                f"{source}: images of {height} x {width} pixels, the model reads --image-size {self.image_size}: "
                f"resize or crop the images"
            )
        logger.info(f"{split}: {len(labels):,} images of {height} x {width} pixels")
        return images, labels

    def augmented(self, images: Union[ImageArray, ImageFolder], labels: np.ndarray) -> AugmentedImageDataset:
        """Return the training images, augmented as the options require."""
        cfg, size, mixing = self.cfg, self.size_of_model(), None
        if str(cfg.augmentation) == "randaugment":
            transform = training_transform(size)
        else:
            transform = evaluation_transform(size, self.kept() if isinstance(images, ImageFolder) else WHOLE)
        if cfg.mixup or cfg.cutmix or cfg.label_smoothing:
            assert self.classes is not None, "the model is built first"
            mixing = BatchMixing(self.classes, cfg.mixup, cfg.cutmix, cfg.label_smoothing)
        dataset = AugmentedImageDataset(
            images, labels, transform, size, cfg.seed, cfg.repeated_augmentation, mixing, not cfg.no_shuffle
        )
        logger.info(f"augmented images, {len(dataset):,} per epoch")
        return dataset

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


def augments(cfg: Any) -> bool:
    """Return whether options change the training images or their labels."""
    requested = cfg.mixup or cfg.cutmix or cfg.label_smoothing or cfg.repeated_augmentation > 1
    return bool(requested) or str(cfg.augmentation) != "none"


def check_options(cfg: Any) -> None:
    """Raise a ValueError for an option that is out of range or cannot be combined with another option."""
    if cfg.repeated_augmentation < 1:
        raise ValueError(f"--repeated-augmentation {cfg.repeated_augmentation}: give 1 (no repetitions) or more")
    for name in ("mixup", "cutmix"):
        if getattr(cfg, name) < 0:
            raise ValueError(f"--{name} {getattr(cfg, name)}: give 0 (none) or more")
    if not 0 <= cfg.label_smoothing < 1:
        raise ValueError(f"--label-smoothing {cfg.label_smoothing}: give 0 or more, less than 1")
    if cfg.no_shuffle and cfg.repeated_augmentation > 1:
        raise ValueError(
            f"--no-shuffle and --repeated-augmentation {cfg.repeated_augmentation}: every epoch would have the same "
            f"part of the images: omit one of the two options"
        )
