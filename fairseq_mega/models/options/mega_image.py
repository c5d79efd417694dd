"""Options of MEGA's image classifiers."""

from argparse import Namespace
from dataclasses import dataclass, field
from typing import Union

from omegaconf import DictConfig

from .completion import check_at_least, complete
from .dropouts import OutputDropout
from .layers import NormOptions, RecomputationOptions
from .revised import revised
from .shape import MegaEncoderWidths

BOUNDS = {"encoder_layers": 1, "image_size": 1, "patch_size": 1, "image_class_num": 2}


@dataclass
@revised(
    defaults={
        "encoder_embed_dim": 768,
        "encoder_layers": 12,
        "encoder_hidden_dim": 1536,
        "encoder_z_dim": 256,
        "dropout": 0.0,
    },
    aliases={"normalization_type": "--norm-type"},
    help={"dropout": "dropout of EMA output, candidate and FFN output"},
)
class MegaImageConfig(MegaEncoderWidths, OutputDropout, NormOptions, RecomputationOptions):
    """Command-line options of ``--arch mega_image``; the defaults are the paper's model for ImageNet (Table 11)."""

    image_size: int = field(default=224, metadata={"help": "height and width of the images in pixels"})
    patch_size: int = field(default=16, metadata={"help": "height and width of the patches they are cut into"})
    image_class_num: int = field(default=1000, metadata={"help": "number of classes"})
    drop_path: float = field(
        default=0.2,
        metadata={"help": "stochastic depth: probability that an image skips the last layer, less in those below it"},
    )


def complete_image_model(cfg: Union[DictConfig, Namespace]) -> DictConfig:
    """Fill and check a configuration of any origin; see :func:`fairseq_mega.models.options.completion.complete`.

    Raises:
        ValueError: where an option is out of range.
    """
    completed = complete(MegaImageConfig, cfg)
    check_at_least(completed, BOUNDS)
    return completed
