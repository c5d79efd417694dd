"""Image tasks of the Long Range Arena: Image (grey CIFAR-10), Pathfinder and Path-X."""

import argparse
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, List, Optional

from fairseq.tasks import register_task

from fairseq_mega.compat.files.card import NORMALIZATION as NORMALIZED
from fairseq_mega.compat.files.card import PIXELS, Card
from fairseq_mega.data.classified import check_labels
from fairseq_mega.data.number_sequences import NumberSequenceDataset, check_normalization
from fairseq_mega.data.pixel_files import PixelFile, columns_of, read_labels

from .classification import ClassificationConfig, ClassificationTask

logger = logging.getLogger(__name__)

NORMALIZATION = "--pixel-normalization"
HALF = (0.5, 0.5)


@dataclass
class LRAImageConfig(ClassificationConfig):
    """Options of ``--task lra-image``."""

    pixel_normalization: Optional[List[float]] = field(
        default=None,
        metadata={"help": "mean and standard deviation of pixels in [0, 1] (default: 0.5 0.5; CIFAR-10: 0.48 0.24)"},
    )
    pixel_cache: Optional[str] = field(
        default=None, metadata={"help": "folder to cache the images as bytes in (default: beside the text files)"}
    )


@register_task("lra-image", dataclass=LRAImageConfig)
class LRAImageTask(ClassificationTask):
    """Classify images, read as a sequence of pixels.

    The data folder holds ``input/{split}.src``, one image per line as integers 0..255, and ``label/{split}.label``, one
    class per line. Pixels x become ``(x / 255 - mean) / std``. The first reading writes the images as bytes to a cache
    file, see :class:`fairseq_mega.data.pixel_files.PixelFile`.

    Source: the published code's task of this name, with its order of training examples.
    """

    input_type = "image"

    def __init__(self, cfg: Any) -> None:
        super().__init__(cfg)
        self.normalization = check_normalization(NORMALIZATION, cfg.pixel_normalization or HALF)

    @classmethod
    def add_args(cls, parser: argparse.ArgumentParser) -> None:
        """Add the options; fairseq's dataclasses cannot express the two values of --pixel-normalization."""
        help_text = LRAImageConfig.__dataclass_fields__["pixel_normalization"].metadata["help"]
        parser.add_argument(NORMALIZATION, nargs=2, type=float, metavar=("MEAN", "STD"), help=help_text)
        super().add_args(parser)  # skips existing options

    def data_card(self) -> Card:
        """Return the normalization of pixels and the pixels of an image, from the training split if it exists."""
        card = {NORMALIZED: " ".join(f"{value:g}" for value in self.normalization)}
        first = self.first_source()
        return card if first is None else {**card, PIXELS: str(columns_of(first))}

    def first_source(self) -> Optional[Path]:
        """Return the text file of the training split, else of another one."""
        folder = Path(self.cfg.data) / "input"
        return next(filter(Path.is_file, (folder / "train.src", *sorted(folder.glob("*.src")))), None)

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> NumberSequenceDataset:
        """Load a split.

        Raises:
            FileNotFoundError: if the split does not exist.
            ValueError: if a line is broken, or the files do not fit together or the model.
        """
        folder = Path(self.cfg.data)
        source, label_path = folder / "input" / f"{split}.src", folder / "label" / f"{split}.label"
        pixels = PixelFile(source, None if self.cfg.pixel_cache is None else Path(self.cfg.pixel_cache))
        labels = read_labels(label_path)
        if len(pixels) != len(labels):
            raise ValueError(
                f"{source} has {len(pixels)} lines, {label_path} has {len(labels)}: they must belong together"
            )
        check_labels(labels, self.classes, str(label_path))
        first = self.data_card()[PIXELS]
        if first != str(pixels.shape[1]):
            raise ValueError(
                f"{source}: images of {pixels.shape[1]} pixels, and {self.first_source()} has images of {first}: all "
                f"images must have one size"
            )
        if self.longest is not None and pixels.shape[1] > self.longest:
            raise ValueError(
                f"{source}: images of {pixels.shape[1]} pixels are longer than --max-positions {self.longest}: give "
                f"--max-positions {pixels.shape[1]}"
            )
        dataset = NumberSequenceDataset(pixels, labels, self.normalization, self.training_order(len(labels)))
        logger.info(f"{split}: {len(dataset):,} images of {pixels.shape[1]:,} pixels")
        self.datasets[split] = dataset
        return dataset
