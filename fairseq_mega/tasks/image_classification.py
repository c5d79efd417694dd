"""Classification of colour images: arrays of one size, or a folder of image files per class."""

import contextlib
import logging
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple, Union

import numpy as np
from fairseq.dataclass import ChoiceEnum
from fairseq.tasks import register_task
from omegaconf import II

from fairseq_mega.compat.checkpoints.names import FRAMING, LABELS, Names
from fairseq_mega.data.augmented_images import AugmentedImageDataset, TransformedImageDataset
from fairseq_mega.data.class_folders import class_files, class_names, listed
from fairseq_mega.data.classified import ClassifiedDataset, check_labels
from fairseq_mega.data.image_arrays import ImageArray, ImageDataset
from fairseq_mega.data.image_augmentation import KEPT, BatchMixing, evaluation_transform, training_transform
from fairseq_mega.data.image_files import PICTURES
from fairseq_mega.data.image_folder import ImageFolder, check_same_classes, split_folder
from fairseq_mega.data.pixel_files import read_labels
from fairseq_mega.models.image_classifier import ImageClassifier

from .classification import ClassificationConfig, ClassificationTask, names_of_labels

logger = logging.getLogger(__name__)

WHOLE = 1.0  # in place of KEPT, of pictures in arrays
AugmentationChoice = ChoiceEnum(["none", "randaugment"])


@dataclass
class ImageClassificationConfig(ClassificationConfig):
    """Options of ``--task image-classification``; the last five are about training images alone."""

    augmentation: AugmentationChoice = field(  # type: ignore[valid-type]
        default="none",
        metadata={
            "help": "augmentation in training; randaugment: the recipe's crop, flip, RandAugment and erasing, by timm"
        },
    )
    repeated_augmentation: int = field(
        default=1, metadata={"help": "N: an epoch has 1/N of the images, each N times (recipe: 3)"}
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
    """Classify colour images, which models see with ImageNet's mean and deviation.

    The data folder holds ``input/{split}.npy``, uint8 (n, S, S, 3) as they leave a resize and crop, and
    ``label/{split}.label``, one class per line; or image files ``{split}/CLASS/FILE``, whose classes are numbered as
    their sorted names. These are resized and cropped here; for the split ``valid`` the folder may be called ``val``.
    A model sees the whole of a picture in a folder where it was trained on arrays, and its centre otherwise.

    Training images are augmented on request. They are drawn anew in each epoch then, also across batches, and what is
    drawn depends on ``--seed``, the epoch and the image, so that workers and a resumed training repeat it.
    """

    input_type = "image"
    training_options = (
        *ClassificationTask.training_options,
        *("augmentation", "repeated_augmentation", "mixup", "cutmix", "label_smoothing"),
    )

    def __init__(self, cfg: Any) -> None:
        super().__init__(cfg)
        check_options(cfg)
        self.image_size: Optional[int] = None  # the model's

    def learn_from(self, model: Any) -> None:
        """Record the size and classes of the model.

        Raises:
            ValueError: if it reads no images.
        """
        if not isinstance(model, ImageClassifier):
            raise ValueError(
                f"--task {self.cfg.get('_name')} needs a classifier of images, {type(model).__name__} is none: give "
                f"--arch mega_image, vit_image or one of their presets"
            )
        self.image_size, self.classes = model.image_size, model.classes

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> ClassifiedDataset:
        """Load a split; its images stay in their files until they are used.

        Raises:
            FileNotFoundError: if it is not there.
            ValueError: if a file is broken, if they do not fit each other or the model, or if no splits were made.
        """
        data = Path(self.cfg.data)
        array, folder = data / "input" / f"{split}.npy", split_folder(data, split)
        images: Union[ImageArray, ImageFolder]
        if folder.is_dir() and array.exists():
            logger.warning(f"{array} is read; left out: {folder}")
        if not (folder.is_dir() or (data / "input").is_dir()):
            raise missing_split(data, split)
        if folder.is_dir() and not array.exists():
            images, labels = self.read_folder(split, folder)
        else:
            images, labels = self.read_array(split, array)
        in_training = "task_cfg" not in kwargs  # which only fairseq's command for scoring passes
        if in_training and augments(self.cfg) and split == self.cfg.train_subset:
            self.datasets[split] = self.augmented(images, labels)
        elif isinstance(images, ImageArray):
            self.datasets[split] = ImageDataset(images, labels, self.training_order(len(labels)))
        else:
            size, order = self.size_of_model(), self.training_order(len(labels))
            transform = evaluation_transform(size, self.kept())
            self.datasets[split] = TransformedImageDataset(images, labels, transform, size, order)
        return self.datasets[split]

    def names_of_numbers(self) -> Dict[str, Names]:
        """The classes, where they are folders: the same in all splits, so that any of them has all; and the framing."""
        first, folder = next(self.sources(), None), self.class_folder()
        remedy = ", or call the folders as in its training: classes are numbered in the order of their names"
        classes = {} if folder is None else names_of_labels(class_names(folder), folder, remedy)
        if first is None:
            return classes
        kept = KEPT if first.is_dir() else WHOLE
        return {**classes, FRAMING: Names(f"{kept:g}", str(first), "give the data folder it was trained on")}

    def kept(self) -> float:
        """Part of a picture's shorter side that is seen: as in the model's training, or else as in that on the data."""
        own = {kind: names.text for kind, names in self.names_of_numbers().items()}
        return float({**own, **self.trained_names}.get(FRAMING, KEPT))

    def labels(self) -> List[str]:
        """Names of the classes in the data, else in the checkpoint; nothing where neither has them."""
        text = {**self.trained_names, **{kind: names.text for kind, names in self.names_of_numbers().items()}}
        return text[LABELS].split("\n") if LABELS in text else []

    def class_folder(self) -> Optional[Path]:
        """The folder of the first split whose classes are folders: that of training, or another one if it is absent."""
        return next(filter(Path.is_dir, self.sources()), None)

    def sources(self) -> Iterator[Path]:
        """The array of each split, or else the folder of its classes; that of training first, if it is there."""
        data = Path(self.cfg.data)
        others = {*(path.name for path in data.glob("*")), *(path.stem for path in data.glob("input/*.npy"))}
        for split in dict.fromkeys(("train", "valid", "test", *sorted(others))):
            array = data / "input" / f"{split}.npy"
            with contextlib.suppress(OSError, ValueError):  # not there, or no folders in it
                if array.exists():
                    yield array
                elif class_names(split_folder(data, split)):
                    yield split_folder(data, split)

    def size_of_model(self) -> int:
        """Height and width of the model's images."""
        assert self.image_size is not None, "the model is built first"
        return self.image_size

    def read_folder(self, split: str, folder: Path) -> Tuple[ImageFolder, np.ndarray]:
        """Images in a folder per class, the same classes as in training.

        Raises:
            ValueError: if they are not, or not as many as the model has.
        """
        first = self.class_folder()
        if first is not None and folder != first:
            check_same_classes(first, folder)
        images = ImageFolder(folder)
        if self.classes is not None and len(images.classes) != self.classes:
            raise ValueError(
                f"{folder} has {len(images.classes)} classes, the model has {self.classes}: give --image-class-num "
                f"{len(images.classes)}"
            )
        logger.info(f"{split}: {len(images):,} images of {len(images.classes):,} classes in {folder}")
        return images, images.labels

    def read_array(self, split: str, source: Path) -> Tuple[ImageArray, np.ndarray]:
        """Images of one size from a file of numpy.

        Raises:
            FileNotFoundError: if there is no such file.
            ValueError: if a file is broken, or they do not fit each other or the model.
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
                f"resize or crop them"
            )
        logger.info(f"{split}: {len(labels):,} images of {height} x {width} pixels")
        return images, labels

    def augmented(self, images: Union[ImageArray, ImageFolder], labels: np.ndarray) -> AugmentedImageDataset:
        """Training images as the options have them."""
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
        """Return the iterator of every classification; augmented images come in the order that they were dealt in.

        Augmented images are not loaded in a thread (--data-buffer-size): its draws would mix with the training's.
        """
        if not isinstance(dataset, AugmentedImageDataset):
            return super().get_batch_iterator(dataset, *args, epoch=epoch, **kwargs)
        accumulated = list(self.cfg.get("update_freq") or [1])  # not known where a checkpoint is scored
        dataset.lanes = kwargs.get("num_shards", 1) * accumulated[min(epoch, len(accumulated)) - 1]
        kwargs["data_buffer_size"] = 0
        iterator = super().get_batch_iterator(dataset, *args, epoch=epoch, **kwargs)
        iterator.disable_shuffling, iterator.shuffle = True, False
        return iterator


def missing_split(data: Path, split: str) -> Exception:
    """Return the error of a data folder without the images of a split: what it holds, and the remedy."""
    names: List[str] = []
    with contextlib.suppress(OSError, ValueError):
        names = class_names(data)
        class_files(data, names, PICTURES)
        return ValueError(
            f"{data} has no {split}/, but images in the folders {listed(names)}: if these are the classes, divide the "
            f"images with `fairseq-mega-prepare own-images --dir {shlex.quote(str(data))} --out NEW`, and give NEW"
        )
    found = f"it holds the folders {listed(names)}" if names else "it holds no folders"
    found = found if data.is_dir() else "it does not exist"
    return FileNotFoundError(
        f"{data} has no images of the split {split} ({found}): give a folder with {split}/CLASS/FILE, or with "
        f"input/{split}.npy and label/{split}.label"
    )


def augments(cfg: Any) -> bool:
    """Return whether options change the training images, or their labels, from those in the data."""
    asked = cfg.mixup or cfg.cutmix or cfg.label_smoothing or cfg.repeated_augmentation > 1
    return bool(asked) or str(cfg.augmentation) != "none"


def check_options(cfg: Any) -> None:
    """Raise a ValueError that names an option which is out of range, or does not go with another."""
    if cfg.repeated_augmentation < 1:
        raise ValueError(f"--repeated-augmentation {cfg.repeated_augmentation}: give 1 (no repetitions) or more")
    for name in ("mixup", "cutmix"):
        if getattr(cfg, name) < 0:
            raise ValueError(f"--{name} {getattr(cfg, name)}: give 0 (none) or more")
    if not 0 <= cfg.label_smoothing < 1:
        raise ValueError(f"--label-smoothing {cfg.label_smoothing}: give 0 or more, less than 1")
    if cfg.no_shuffle and cfg.repeated_augmentation > 1:
        raise ValueError(
            f"--no-shuffle and --repeated-augmentation {cfg.repeated_augmentation}: an epoch would show the same part "
            f"of the images each time, leave one of them out"
        )
