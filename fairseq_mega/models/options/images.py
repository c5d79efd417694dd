"""Options of classifiers of colour images."""

from argparse import Namespace
from dataclasses import dataclass, field
from typing import Type, Union

from fairseq.dataclass import FairseqDataclass
from omegaconf import DictConfig

from .completion import check_at_least, complete

BOUNDS = {"encoder_layers": 1, "image_size": 1, "patch_size": 1, "image_class_num": 2}


@dataclass
class ImageOptions(FairseqDataclass):
    """The images and their classes."""

    image_size: int = field(default=224, metadata={"help": "height and width of the images in pixels"})
    patch_size: int = field(default=16, metadata={"help": "height and width of the patches they are cut into"})
    image_class_num: int = field(default=1000, metadata={"help": "number of classes"})
    drop_path: float = field(
        default=0.2,
        metadata={"help": "stochastic depth: probability that an image skips the last layer, less in those below it"},
    )


def complete_images(options: Type[ImageOptions], cfg: Union[DictConfig, Namespace], **bounds: int) -> DictConfig:
    """Fill and check a configuration of any origin; see :func:`fairseq_mega.models.options.completion.complete`.

    Args:
        options: of the model.
        cfg: the configuration.
        bounds: least values of options, besides those of all image classifiers.

    Raises:
        ValueError: where an option is out of range.
    """
    completed = complete(options, cfg)
    check_at_least(completed, {**BOUNDS, **bounds})
    return completed
