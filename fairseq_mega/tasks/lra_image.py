"""Image tasks of the Long Range Arena: Image (grey CIFAR-10), Pathfinder and Path-X."""

import argparse
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, List, Optional

from fairseq.tasks import register_task

from fairseq_mega.compat.files.card import NORMALIZATION, PIXELS, Card
from fairseq_mega.data.classified import NumberSequenceDataset, read_labels
from fairseq_mega.data.pixel_files import columns_of, map_pixels

from .classification import ClassificationConfig, ClassificationTask


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
    file, see :func:`fairseq_mega.data.pixel_files.map_pixels`.

    Source: the published code's task of this name, with its order of training examples.
    """

    input_type = "image"

    def __init__(self, cfg: Any) -> None:
        super().__init__(cfg)
        mean, deviation = cfg.pixel_normalization or (0.5, 0.5)
        self.normalization = float(mean), float(deviation)

    @classmethod
    def add_args(cls, parser: argparse.ArgumentParser) -> None:
        """Add the options; fairseq's dataclasses cannot express the two values of --pixel-normalization."""
        help_text = LRAImageConfig.__dataclass_fields__["pixel_normalization"].metadata["help"]
        parser.add_argument("--pixel-normalization", nargs=2, type=float, metavar=("MEAN", "STD"), help=help_text)
        super().add_args(parser)  # skips existing options

    def data_card(self) -> Card:
        """Return the normalization of pixels and the pixels of an image, from the training split if it exists."""
        card = {NORMALIZATION: " ".join(f"{value:g}" for value in self.normalization)}
        folder = Path(self.cfg.data) / "input"
        first = next(filter(Path.is_file, (folder / "train.src", *sorted(folder.glob("*.src")))), None)
        return card if first is None else {**card, PIXELS: str(columns_of(first))}

    def read_split(self, split: str, training: bool) -> NumberSequenceDataset:
        """Read a split; see the base class.

        Raises:
            ValueError: also if the training split has images of another size.
        """
        folder = Path(self.cfg.data)
        source = folder / "input" / f"{split}.src"
        pixels = map_pixels(source, None if self.cfg.pixel_cache is None else Path(self.cfg.pixel_cache))
        if self.data_card()[PIXELS] != str(pixels.shape[1]):
            raise ValueError(f"{source} has {pixels.shape[1]} pixels a line, train.src {self.data_card()[PIXELS]}")
        return NumberSequenceDataset(pixels, read_labels(folder / "label" / f"{split}.label"), self.normalization)
