"""Classification of colour images that were cut to one size before."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from fairseq.tasks import register_task

from fairseq_mega.data.classified import check_labels
from fairseq_mega.data.image_arrays import ImageArray, ImageDataset
from fairseq_mega.data.pixel_files import read_labels
from fairseq_mega.models.mega_image import MegaImageModel

from .classification import ClassificationConfig, ClassificationTask

logger = logging.getLogger(__name__)


@dataclass
class ImageClassificationConfig(ClassificationConfig):
    """Options of ``--task image-classification``."""


@register_task("image-classification", dataclass=ImageClassificationConfig)
class ImageClassificationTask(ClassificationTask):
    """Classify colour images.

    The data folder holds ``input/{split}.npy``, uint8 (n, S, S, 3) as they leave a resize and crop, and
    ``label/{split}.label``, one class per line. Models see them with ImageNet's mean and deviation, and without the
    augmentation of the paper's recipe.
    """

    input_type = "image"

    def __init__(self, cfg: Any) -> None:
        super().__init__(cfg)
        self.image_size: Optional[int] = None  # the model's

    def learn_from(self, model: Any) -> None:
        """Know what the model reads.

        Raises:
            ValueError: if it reads no images.
        """
        if not isinstance(model, MegaImageModel):
            raise ValueError(
                f"--task {self.cfg.get('_name')} needs a classifier of images, {type(model).__name__} is none: give "
                f"--arch mega_image or one of its presets"
            )
        self.image_size, self.classes = model.image_size, model.classes

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> ImageDataset:
        """Load a split; its images stay in the file until they are used.

        Raises:
            FileNotFoundError: if it is not there.
            ValueError: if a file is broken, or they do not fit each other or the model.
        """
        folder = Path(self.cfg.data)
        source, label_path = folder / "input" / f"{split}.npy", folder / "label" / f"{split}.label"
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
        self.datasets[split] = ImageDataset(images, labels, self.training_order(len(labels)))
        logger.info(f"{split}: {len(labels):,} images of {height} x {width} pixels")
        return self.datasets[split]
