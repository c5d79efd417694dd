"""Shapes of the layers: widths, depth and chunk of each side of a model. Defaults are the paper's base (Table 10)."""

from dataclasses import dataclass, field
from typing import Optional

from fairseq.dataclass import FairseqDataclass

from .revised import revised

AS_ENCODER = "default: the encoder's"
COMPLEX_DIMENSIONS = "dimensions N of the complex EMA per feature"


@dataclass
class EncoderSize(FairseqDataclass):
    """Width and depth of any encoder."""

    encoder_embed_dim: int = field(default=512, metadata={"help": "width d"})
    encoder_layers: int = field(default=6, metadata={"help": "number of layers"})


@dataclass
class LongestInput(FairseqDataclass):
    """How long the input of a model of single sequences gets."""

    max_positions: int = field(default=1024, metadata={"help": "longest input"})


@dataclass
class EncoderState(FairseqDataclass):
    """How large the state of an encoder's recurrences is."""

    encoder_n_dim: int = field(default=16, metadata={"help": "EMA dimensions N per feature, 0 for no EMA"})


@dataclass
class MegaEncoderWidths(EncoderState, EncoderSize):
    """Widths of an encoder of MEGA layers."""

    encoder_hidden_dim: int = field(default=1024, metadata={"help": "width v of the attention's values"})
    encoder_ffn_embed_dim: Optional[int] = field(
        default=None, metadata={"help": "inner width of the FFN, 0 for none (default: --encoder-hidden-dim)"}
    )
    encoder_z_dim: int = field(default=128, metadata={"help": "width z of the shared query/key representation"})


@dataclass
class MegaEncoderShape(MegaEncoderWidths):
    """Shape of an encoder of MEGA layers."""

    encoder_chunk_size: int = field(default=-1, metadata={"help": "attention chunk C, -1 for full attention"})


@dataclass
class EncoderHeads(FairseqDataclass):
    """How many heads the attention of an encoder's layers has."""

    encoder_attention_heads: int = field(default=1, metadata={"help": "attention heads"})


@dataclass
@revised(
    help={
        "encoder_n_dim": COMPLEX_DIMENSIONS,
        "encoder_ffn_embed_dim": "inner width of the FFN (default: --encoder-hidden-dim)",
    }
)
class MegalodonEncoderWidths(EncoderHeads, MegaEncoderWidths):
    """Widths of an encoder of MEGALODON layers."""


@dataclass
class MegalodonEncoderShape(MegalodonEncoderWidths, MegaEncoderShape):
    """Shape of an encoder of MEGALODON layers."""


@dataclass
@revised(defaults={"encoder_attention_heads": 4}, aliases={"encoder_attention_heads": "--attention-heads"})
class TransformerEncoderShape(EncoderHeads, EncoderSize):
    """Shape of an encoder of Transformer layers."""

    encoder_ffn_embed_dim: int = field(default=512, metadata={"help": "inner width of the FFN"})


@dataclass
class DecoderSize(FairseqDataclass):
    """Depth of any decoder, and the inner width of its FFN, which may be left open."""

    decoder_layers: int = field(default=6, metadata={"help": "number of layers"})
    decoder_ffn_embed_dim: Optional[int] = field(
        default=None, metadata={"help": "inner width of the FFN, 0 for none (default: --decoder-hidden-dim)"}
    )


@dataclass
class DecoderWidth(DecoderSize):
    """Size of any decoder that stands alone."""

    decoder_embed_dim: int = field(default=512, metadata={"help": "width d"})


@dataclass
class DecoderHeads(FairseqDataclass):
    """How many heads the attention of a decoder's layers has."""

    decoder_attention_heads: int = field(default=1, metadata={"help": "attention heads"})


@dataclass
class MegaDecoderShape(DecoderWidth):
    """Shape of a decoder of MEGA layers that stands alone."""

    decoder_hidden_dim: int = field(default=1024, metadata={"help": "width v of the attention's values"})
    decoder_z_dim: int = field(default=128, metadata={"help": "width z of the shared query/key representation"})
    decoder_n_dim: int = field(default=16, metadata={"help": "EMA dimensions N per feature, 0 for no EMA"})
    decoder_chunk_size: int = field(default=-1, metadata={"help": "attention chunk C, -1 for full attention"})


@dataclass
@revised(
    help={
        "decoder_n_dim": COMPLEX_DIMENSIONS,
        "decoder_ffn_embed_dim": "inner width of the FFN (default: --decoder-hidden-dim)",
    }
)
class MegalodonDecoderShape(DecoderHeads, MegaDecoderShape):
    """Shape of a decoder of MEGALODON layers."""


@dataclass
@revised(
    defaults={"decoder_attention_heads": 8},
    help={"decoder_ffn_embed_dim": "inner width of the FFN (default: 8/3 of d, rounded up to a multiple of 256)"},
)
class LlamaDecoderShape(DecoderHeads, DecoderWidth):
    """Shape of a decoder of Llama-style layers."""


@dataclass
@revised(help={"decoder_ffn_embed_dim": AS_ENCODER})
class FollowingDecoderShape(DecoderSize):
    """Shape of a decoder of MEGA layers beside an encoder, whose shape it takes where nothing else is said."""

    decoder_embed_dim: Optional[int] = field(default=None, metadata={"help": "decoder width (default: the encoder's)"})
    decoder_hidden_dim: Optional[int] = field(default=None, metadata={"help": AS_ENCODER})
    decoder_z_dim: Optional[int] = field(default=None, metadata={"help": AS_ENCODER})
    decoder_n_dim: Optional[int] = field(default=None, metadata={"help": AS_ENCODER})
    decoder_chunk_size: Optional[int] = field(default=None, metadata={"help": AS_ENCODER})
