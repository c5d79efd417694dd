"""Options of MEGA's image classifiers."""

from argparse import Namespace
from dataclasses import dataclass
from typing import Union

from omegaconf import DictConfig

from .completion import check_at_least, complete
from .dropouts import OutputDropout
from .images import BOUNDS, ImageOptions
from .layers import NormOptions, RecomputationOptions
from .revised import revised
from .shape import MegaEncoderWidths


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
class MegaImageConfig(ImageOptions, MegaEncoderWidths, OutputDropout, NormOptions, RecomputationOptions):
    """Command-line options of ``--arch mega_image``; the defaults are the paper's model for ImageNet (Table 11)."""


def complete_image_model(cfg: Union[DictConfig, Namespace]) -> DictConfig:
    """Fill and check a configuration of any origin; see :func:`fairseq_mega.models.options.completion.complete`.

    Raises:
        ValueError: where an option is out of range.
    """
    completed = complete(MegaImageConfig, cfg)
    check_at_least(completed, BOUNDS)
    return completed
