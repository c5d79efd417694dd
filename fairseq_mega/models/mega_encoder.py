"""Encoder of the MEGA encoder-decoder."""

from typing import Any, Dict, List, Optional, Tuple

import torch
from fairseq.data import Dictionary
from fairseq.models import FairseqEncoder
from omegaconf import DictConfig
from torch import Tensor, nn

from fairseq_mega.modules.layer import LayerContext
from fairseq_mega.modules.mega_layer import MegaLayer
from fairseq_mega.modules.norm import build_norm
from fairseq_mega.modules.padding import padding_of
from fairseq_mega.modules.trunk import Trunk

from .options.configurations import layer_config, naming_flags
from .tables import token_embedding


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
        layers = [MegaLayer(config) for _ in range(cfg.encoder_layers)]
        final_norm = build_norm(config.norm, config.embed_dim) if config.normalize_before else None
        self.add_layers(layers, final_norm, config.checkpoint_activations)

    @naming_flags("encoder", "max_source_positions")
    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Optional[Tensor] = None,
        return_all_hiddens: bool = False,
        **unused: Any,
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
