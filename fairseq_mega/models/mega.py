"""MEGA encoder-decoder for translation (MEGA, Ma et al., ICLR 2023, section 4.4 and Table 10)."""

from argparse import Namespace
from typing import Any, Optional, Union

from fairseq.models import FairseqEncoderDecoderModel, register_model
from omegaconf import II, DictConfig
from torch import Tensor, nn

from fairseq_mega.modules.dropout import postpone

from .checkpoints import ReadsOlderCheckpoints
from .decode_weights import DecodesPacked
from .mega_decoder import MegaDecoder
from .mega_encoder import MegaEncoder
from .options.configurations import check_at_least, check_embedding_norm, complete
from .options.option import Option, Role, following, of_side, with_options
from .options.table import DECODER_TABLES, LATE_DROPOUT, MEGA, TARGET_POSITIONS
from .tables import check_tables, decoder_table, plain_table


@with_options(
    *of_side("encoder", MEGA),
    *following(MEGA),
    Option("encoder_embed_path", Optional[str], None, Role.TRAINING, "pretrained encoder embeddings"),
    *DECODER_TABLES,
    Option(
        "share_all_embeddings",
        bool,
        False,
        Role.TENSORS,
        "one table for source, target and output; requires a joined dictionary",
    ),
    Option(
        "published_source_padding",
        bool,
        False,
        Role.OUTPUTS,
        "count source positions of cross attention from the start of the padded batch, as the published code does; "
        "scores of a left-padded sentence then depend on its batch (default: independent)",
    ),
    LATE_DROPOUT,
    Option("max_source_positions", int, II("task.max_source_positions"), Role.TENSORS),
    TARGET_POSITIONS._replace(type=int),
    encoder_embed_dim={"help": "encoder width d"},
    encoder_layers={"help": "number of encoder layers"},
    encoder_hidden_dim={"help": "width v of the attention's values in the encoder"},
    encoder_ffn_embed_dim={"help": "inner width of the encoder's FFN, 0 for none (default: --encoder-hidden-dim)"},
    encoder_chunk_size={"help": "attention chunk C of the encoder, -1 for full attention"},
    decoder_embed_dim={"help": "decoder width (default: the encoder's)"},
    decoder_layers={"help": "number of decoder layers"},
    decoder_embed_path={"help": "pretrained decoder embeddings"},
    share_decoder_input_output_embed={"help": "one table for the decoder's input and output embeddings"},
)
class MegaConfig:
    """Command-line options of ``--arch mega``, named as in the published code."""


def check_side_of_padding(task: Any) -> None:
    """Raise a ValueError for a task with padding before the targets, which a decoder would read as text."""
    options = getattr(task, "cfg", None) or getattr(task, "args", None)
    if str(getattr(options, "left_pad_target", False)) == "True":  # a text in older checkpoints
        raise ValueError(
            "--left-pad-target: the decoder would read padding before a target as text: omit it, and "
            "for a checkpoint that was trained with it give --model-overrides \"{'left_pad_target': False}\""
        )


@register_model("mega", dataclass=MegaConfig)
class MegaModel(ReadsOlderCheckpoints, DecodesPacked, FairseqEncoderDecoderModel):
    """MEGA encoder-decoder: ``--arch mega`` and its presets, ``preset_names("mega")``."""

    @classmethod
    def build_model(cls, cfg: Union[DictConfig, Namespace], task: Any) -> "MegaModel":
        """Build a model for a translation task.

        Raises:
            ValueError: where options are out of range or contradict each other or the task's dictionaries.
        """
        cfg = complete(MegaConfig, cfg)
        check_embedding_norm(cfg)
        check_tables(cfg)
        check_at_least(cfg, {"encoder_layers": 1, "decoder_layers": 1, "late_dropout": 0})
        check_side_of_padding(task)
        source, target = task.source_dictionary, task.target_dictionary
        decoder_dim = cfg.decoder_embed_dim or cfg.encoder_embed_dim
        if decoder_dim != cfg.encoder_embed_dim:
            raise ValueError(
                f"--decoder-embed-dim {decoder_dim} differs from --encoder-embed-dim {cfg.encoder_embed_dim}: "
                f"cross attention requires equal widths"
            )
        if cfg.share_all_embeddings:
            if source != target:
                raise ValueError(
                    f"--share-all-embeddings requires one dictionary for both languages, found {len(source)} source "
                    f"and {len(target)} target tokens: run fairseq-preprocess with --joined-dictionary, or leave "
                    f"--share-all-embeddings out"
                )
            if cfg.decoder_embed_path and cfg.decoder_embed_path != cfg.encoder_embed_path:
                raise ValueError("--share-all-embeddings has one table: give --encoder-embed-path only")
            if cfg.adaptive_input:
                raise ValueError(
                    "--share-all-embeddings has one plain table: omit --adaptive-input or --share-all-embeddings"
                )
        encoder_table = plain_table(source, cfg.encoder_embed_dim, cfg.encoder_embed_path, "--encoder-embed-path")
        target_table: nn.Module = encoder_table
        if not cfg.share_all_embeddings:
            target_table = decoder_table(cfg, target, decoder_dim, decoder_dim)
        model = cls(MegaEncoder(cfg, source, encoder_table), MegaDecoder(cfg, target, target_table))
        postpone(model, cfg.late_dropout)
        return model

    def forward(self, src_tokens: Tensor, src_lengths: Tensor, prev_output_tokens: Tensor, **options: Any) -> Any:
        """Return logits (B, L, V) of the target given source (B, S) and target so far (B, L), and a dictionary."""
        encoder_out = self.encoder(src_tokens, src_lengths=src_lengths, **options)
        return self.decoder(prev_output_tokens, encoder_out=encoder_out, **options)
