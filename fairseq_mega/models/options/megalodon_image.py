"""Options of MEGALODON's image classifiers."""

from dataclasses import dataclass

from .dropouts import MegalodonDropouts
from .images import ImageOptions
from .layers import MegalodonLayerOptions
from .revised import revised
from .shape import MegalodonEncoderWidths


@dataclass
@revised(
    defaults={
        "encoder_embed_dim": 768,
        "encoder_layers": 12,
        "encoder_hidden_dim": 1536,
        "encoder_ffn_embed_dim": 1920,
        "encoder_z_dim": 256,
    },
    help={"dropout": "dropout of each sub-layer's output"},
)
class MegalodonImageConfig(ImageOptions, MegalodonEncoderWidths, MegalodonDropouts, MegalodonLayerOptions):
    """Command-line options of ``--arch megalodon_image``; the defaults are our interpretation of the paper's model for
    ImageNet (MEGALODON, Table 4).
    """
