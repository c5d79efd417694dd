"""Options of Vision Transformers."""

from dataclasses import dataclass

from .dropouts import OutputDropout
from .images import ImageOptions
from .revised import revised
from .shape import TransformerEncoderShape


@dataclass
@revised(
    defaults={
        "encoder_embed_dim": 768,
        "encoder_layers": 12,
        "encoder_ffn_embed_dim": 3072,
        "encoder_attention_heads": 12,
        "dropout": 0.0,
        "drop_path": 0.1,
    },
    help={"dropout": "dropout of each sub-layer's output"},
)
class VitImageConfig(ImageOptions, TransformerEncoderShape, OutputDropout):
    """Command-line options of ``--arch vit_image``; the defaults are DeiT-B (Touvron et al., ICML 2021)."""
