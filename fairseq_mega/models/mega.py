"""MEGA encoder-decoder for translation (MEGA, Ma et al., ICLR 2023, section 4.4 and Table 10)."""

from argparse import Namespace
from typing import Any, Dict, List, Optional, Tuple, Union

import torch
from fairseq.data import Dictionary
from fairseq.models import FairseqEncoder, FairseqEncoderDecoderModel, register_model
from omegaconf import II, DictConfig
from torch import Tensor, nn

from fairseq_mega.modules.dropout import postpone
from fairseq_mega.modules.layer import LayerContext
from fairseq_mega.modules.padding import padding_of
from fairseq_mega.modules.trunk import Trunk

from .checkpoints import ReadsOlderCheckpoints
from .decode_weights import DecodesPacked
from .decoder import DecoderStack, IncrementalState, mega_layers
from .options.configurations import check_at_least, check_embedding_norm, complete, layer_config, naming_flags
from .options.option import Option, Role, following, of_side, with_options
from .options.table import DECODER_TABLES, LATE_DROPOUT, MEGA, TARGET_POSITIONS
from .tables import check_tables, decoder_table, plain_table, token_embedding


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


class MegaEncoder(Trunk, FairseqEncoder):
    """Bidirectional MEGA layers over token embeddings.

    Sentences of left-padded batches are moved to the left edge first, so chunk ends and the positions of cross
    attention do not depend on the batch of a sentence (``--published-source-padding`` keeps the published positions).

    Args:
        cfg: a completed MegaConfig.
        dictionary: dictionary of the source language.
        embed_tokens: source embeddings (V, d).
    """

    def __init__(self, cfg: DictConfig, dictionary: Dictionary, embed_tokens: nn.Embedding) -> None:
        super().__init__(dictionary)
        config = layer_config(cfg, "encoder", "max_source_positions")
        self.padding_idx = dictionary.pad()
        self.max_source_positions = cfg.max_source_positions
        self.published_source_padding = cfg.published_source_padding
        self.chunked = config.chunk_size > 0
        self.embedding = token_embedding(cfg, embed_tokens, config.embed_dim)
        self.add_layers(*mega_layers(config, cfg.encoder_layers), config.checkpoint_activations)

    @naming_flags("encoder", "max_source_positions")
    def forward(
        self, src_tokens: Tensor, src_lengths: Optional[Tensor] = None, return_all_hiddens: bool = False, **unused: Any
    ) -> Dict[str, List[Tensor]]:
        """Encode a batch of sentences.

        Args:
            src_tokens: (B, S) long, padded on either side.
            src_lengths: (B,), ignored.
            return_all_hiddens: also return every layer's output.

        Returns:
            fairseq's dictionary of lists, which may be empty: ``encoder_out`` [(S, B, d)], ``encoder_padding_mask``
            [(B, S)], ``encoder_states`` [(S, B, d)] and ``source_order`` [(B, S)], the column of ``encoder_out`` that
            holds each column of ``src_tokens`` (empty: the same column).

        Raises:
            ValueError: if the simple relative bias does not cover the length.
        """
        padding_mask = padding_of(src_tokens, self.padding_idx)
        order: Optional[Tensor] = None
        left_padded = padding_mask is not None and bool(padding_mask[:, 0].any())
        if padding_mask is not None and left_padded and (self.chunked or not self.published_source_padding):
            src_tokens, order = align_left(src_tokens, padding_mask)
            padding_mask = src_tokens.eq(self.padding_idx)

        embedding = self.embedding(src_tokens, padding_mask)
        out = self.run_layers(embedding, LayerContext(padding_mask), inner_states=return_all_hiddens)
        x, states = out.hidden, out.inner_states

        if order is not None and self.published_source_padding:
            assert padding_mask is not None
            x, embedding, *states = (rows(item, order) for item in (x, embedding, *states))
            padding_mask, order = rows(padding_mask, order), None
        return {
            "encoder_out": [x.transpose(0, 1)],
            "encoder_padding_mask": [] if padding_mask is None else [padding_mask],
            "encoder_embedding": [embedding],
            "encoder_states": [state.transpose(0, 1) for state in states],
            "src_tokens": [],
            "src_lengths": [],
            "source_order": [] if order is None else [order],
        }

    def reorder_encoder_out(self, encoder_out: Dict[str, List[Tensor]], new_order: Tensor) -> Dict[str, List[Tensor]]:
        """Select batch rows of the encoder's output, as beam search does."""
        time_first = ("encoder_out", "encoder_states")
        return {
            key: [item.index_select(1 if key in time_first else 0, new_order) for item in items]
            for key, items in encoder_out.items()
        }

    def max_positions(self) -> int:
        """Longest source of the model."""
        return self.max_source_positions


def align_left(tokens: Tensor, padding_mask: Tensor) -> Tuple[Tensor, Tensor]:
    """Rotate each row of (B, S) so that its leading padding comes last.

    Returns:
        The rotated tokens, and ``order`` (B, S), the column of the result that holds each column of the input.
    """
    columns = torch.arange(tokens.size(1), device=tokens.device)
    leading = padding_mask.long().cumprod(dim=1).sum(dim=1, keepdim=True)
    return rows(tokens, (columns + leading) % tokens.size(1)), (columns - leading) % tokens.size(1)


def rows(x: Tensor, index: Tensor) -> Tensor:
    """Return ``x[b, index[b, s]]`` for x (B, S, ...) and index (B, S)."""
    return x[torch.arange(x.size(0), device=x.device).unsqueeze(1), index]


class MegaDecoder(DecoderStack):
    """Causal MEGA layers with gated cross attention over token embeddings.

    Args:
        cfg: a completed MegaConfig.
        dictionary: dictionary of the target language.
        embed_tokens: target embeddings, a table (V, d) or an adaptive one.
    """

    def __init__(self, cfg: DictConfig, dictionary: Dictionary, embed_tokens: nn.Module) -> None:
        most = max(cfg.max_source_positions, cfg.max_target_positions)
        config = layer_config(cfg, "decoder", "max_target_positions", cross_attention=True, cross_max_positions=most)
        embedding = token_embedding(cfg, embed_tokens, config.embed_dim)
        layers = mega_layers(config, cfg.decoder_layers)
        shared = cfg.share_decoder_input_output_embed or cfg.share_all_embeddings
        super().__init__(cfg, dictionary, embedding, *layers, config.embed_dim, shared)
        self.max_target_positions = cfg.max_target_positions

    def extract_features(
        self,
        prev_output_tokens: Tensor,
        encoder_out: Optional[Dict[str, List[Tensor]]] = None,
        incremental_state: Optional[IncrementalState] = None,
        **unused: Any,
    ) -> Tuple[Tensor, Dict[str, Any]]:
        """Run the decoder without its output layer; arguments as :meth:`forward`.

        Returns:
            Features (B, L, d), and ``{"attn": [(B, L, S)]}``, the last layer's cross-attention weights, in evaluation
            (``[None]`` in training).
        """
        assert encoder_out is not None, "an encoder-decoder model requires the encoder's output"
        masks = encoder_out["encoder_padding_mask"]
        context = LayerContext(
            encoder_out=encoder_out["encoder_out"][0].transpose(0, 1),
            encoder_padding_mask=masks[0] if masks else None,
            need_weights=not self.training,
        )
        out = self.run_incrementally(prev_output_tokens, incremental_state, context)
        return out.hidden, {"attn": [_source_columns(out.cross_weights, encoder_out)], "inner_states": None}

    def max_positions(self) -> int:
        """Longest target of the model."""
        return self.max_target_positions


def _source_columns(weights: Optional[Tensor], encoder_out: Dict[str, List[Tensor]]) -> Optional[Tensor]:
    """Restore the column order of the source batch in attention weights (B, L, S)."""
    if weights is None or not encoder_out.get("source_order"):
        return weights
    order = encoder_out["source_order"][0].unsqueeze(1).expand_as(weights)
    return torch.gather(weights, 2, order)


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
        source, target = task.source_dictionary, task.target_dictionary
        decoder_dim = cfg.decoder_embed_dim or cfg.encoder_embed_dim
        if cfg.share_all_embeddings and source != target:
            raise ValueError(
                f"--share-all-embeddings requires one dictionary for both languages, found {len(source)} source and "
                f"{len(target)} target tokens: run fairseq-preprocess with --joined-dictionary, or omit the option"
            )
        if cfg.share_all_embeddings and (cfg.adaptive_input or cfg.decoder_embed_path):
            raise ValueError(
                "--share-all-embeddings has one plain table, of --encoder-embed-path: omit it, or --adaptive-input and "
                "--decoder-embed-path"
            )
        encoder_table = plain_table(source, cfg.encoder_embed_dim, cfg.encoder_embed_path)
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
