"""Options of MEGA's image classifiers."""

from dataclasses import dataclass

from .dropouts import OutputDropout
from .images import ImageOptions
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
