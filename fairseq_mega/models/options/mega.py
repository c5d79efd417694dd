"""Options of the MEGA encoder-decoder."""

from dataclasses import dataclass, field
from typing import Optional

from omegaconf import II

from .dropouts import LateDropout, MegaDropouts
from .layers import MegaLayerOptions
from .revised import revised
from .shape import FollowingDecoderShape, MegaEncoderShape
from .tables import DecoderTables


@dataclass
@revised(
    help={
        "encoder_embed_dim": "encoder width d",
        "encoder_hidden_dim": "width v of the attention's values in the encoder",
        "encoder_ffn_embed_dim": "inner width of the encoder's FFN, 0 for none (default: --encoder-hidden-dim)",
        "encoder_layers": "number of encoder layers",
        "encoder_chunk_size": "attention chunk C of the encoder, -1 for full attention",
        "decoder_layers": "number of decoder layers",
        "decoder_embed_path": "pretrained decoder embeddings",
        "share_decoder_input_output_embed": "one table for the decoder's input and output embeddings",
    }
)
class MegaConfig(DecoderTables, FollowingDecoderShape, MegaEncoderShape, LateDropout, MegaDropouts, MegaLayerOptions):
    """Command-line options of ``--arch mega``, named as in the published code."""

    encoder_embed_path: Optional[str] = field(default=None, metadata={"help": "pretrained encoder embeddings"})
    share_all_embeddings: bool = field(
        default=False,
        metadata={
            "help": "one table for source, target and output (needs a joined dictionary; an adaptive softmax has "
            "tables of its own)"
        },
    )
    published_source_padding: bool = field(
        default=False,
        metadata={
            "help": "let cross attention count source positions from the start of the padded batch, as the published "
            "code does, so that a left-padded sentence's scores depend on its batch; by default they do not"
        },
    )
    max_source_positions: int = II("task.max_source_positions")
    max_target_positions: int = II("task.max_target_positions")
