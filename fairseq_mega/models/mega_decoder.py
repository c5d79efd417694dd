"""Decoder of the MEGA encoder-decoder, with incremental decoding."""

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as F
from fairseq.data import Dictionary
from fairseq.models import FairseqIncrementalDecoder
from omegaconf import DictConfig
from torch import Tensor, nn

from fairseq_mega.modules.embedding import padding_of, zero_padding
from fairseq_mega.modules.mega_layer import MegaLayer
from fairseq_mega.modules.norm import build_norm
from fairseq_mega.modules.state import LayerState, reorder_state

from .mega_config import layer_config, token_embedding

IncrementalState = Dict[str, Dict[str, Any]]


class DecoderState(NamedTuple):
    """Memory of the whole decoder: tokens read so far, and what each layer remembers of them."""

    step: int
    layers: List[LayerState]


class MegaDecoder(FairseqIncrementalDecoder):
    """Causal MEGA layers with gated cross attention over token embeddings.

    Args:
        cfg: a completed MegaConfig.
        dictionary: of the target language.
        embed_tokens: target embeddings (V, d).
    """

    def __init__(self, cfg: DictConfig, dictionary: Dictionary, embed_tokens: nn.Embedding) -> None:
        super().__init__(dictionary)
        config = layer_config(cfg, "decoder")
        self.padding_idx = dictionary.pad()
        self.max_target_positions = cfg.max_target_positions
        self.embedding = token_embedding(cfg, embed_tokens)
        self.layers = nn.ModuleList(MegaLayer(config) for _ in range(cfg.decoder_layers))
        self.final_norm = build_norm(config.norm, config.embed_dim) if config.normalize_before else None
        self.share_input_output_embed = cfg.share_decoder_input_output_embed or cfg.share_all_embeddings
        if not self.share_input_output_embed:
            self.output_projection = nn.Linear(config.embed_dim, len(dictionary), bias=False)
            nn.init.normal_(self.output_projection.weight, std=config.embed_dim**-0.5)

    def forward(
        self,
        prev_output_tokens: Tensor,
        encoder_out: Optional[Dict[str, List[Tensor]]] = None,
        incremental_state: Optional[IncrementalState] = None,
        features_only: bool = False,
        **unused: Any,
    ) -> Tuple[Tensor, Dict[str, Any]]:
        """Predict the next token at every position.

        Args:
            prev_output_tokens: (B, L) long, everything read so far; with ``incremental_state`` only the tokens that
                earlier calls have not seen are processed.
            encoder_out: what the encoder returned.
            incremental_state: fairseq's store for state during decoding.
            features_only: return the features (B, L, d) instead of logits.

        Returns:
            Logits (B, L, V), and ``{"attn": [(B, L, S)]}``, the last layer's cross-attention weights, in evaluation
            (``[None]`` in training).
        """
        x, extra = self.extract_features(prev_output_tokens, encoder_out, incremental_state)
        return (x if features_only else self.output_layer(x)), extra

    def extract_features(
        self,
        prev_output_tokens: Tensor,
        encoder_out: Optional[Dict[str, List[Tensor]]] = None,
        incremental_state: Optional[IncrementalState] = None,
        **unused: Any,
    ) -> Tuple[Tensor, Dict[str, Any]]:
        """The decoder without its output layer; arguments and result as :meth:`forward`."""
        assert encoder_out is not None, "an encoder-decoder model needs the encoder's output"
        state: Optional[DecoderState] = None
        if incremental_state is not None:
            state = self.get_incremental_state(incremental_state, "layers")
            tokens = prev_output_tokens if state is None else prev_output_tokens[:, state.step :]
        else:
            tokens = prev_output_tokens
        padding_mask = padding_of(tokens, self.padding_idx)
        x = self.embedding(tokens, padding_mask)
        source = encoder_out["encoder_out"][0].transpose(0, 1)
        source_mask = encoder_out["encoder_padding_mask"][0] if encoder_out["encoder_padding_mask"] else None
        new_states: List[LayerState] = []
        weights: Optional[Tensor] = None
        for index, layer in enumerate(self.layers):
            last = index + 1 == len(self.layers)
            out = layer(
                x,
                padding_mask=padding_mask,
                encoder_out=source,
                encoder_padding_mask=source_mask,
                state=None if state is None else state.layers[index],
                return_state=incremental_state is not None,
                need_weights=last and not self.training,
            )
            x = out.hidden
            weights = out.cross_weights
            if out.state is not None:
                new_states.append(out.state)
        if self.final_norm is not None:
            x = self.final_norm(x)
        x = zero_padding(x, padding_mask)
        if incremental_state is not None:
            read = 0 if state is None else state.step
            new_state = DecoderState(read + tokens.size(1), new_states)
            self.set_incremental_state(incremental_state, "layers", new_state)
        return x, {"attn": [_source_columns(weights, encoder_out)], "inner_states": None}

    def output_layer(self, features: Tensor, **unused: Any) -> Tensor:
        """Project features (..., d) to logits (..., V)."""
        if self.share_input_output_embed:
            return F.linear(features, self.embedding.tokens.weight)
        return self.output_projection(features)

    def reorder_incremental_state(self, incremental_state: IncrementalState, new_order: Tensor) -> None:
        """Select batch rows of the decoder's memory, as beam search does."""
        state = self.get_incremental_state(incremental_state, "layers")
        if state is not None:
            self.set_incremental_state(incremental_state, "layers", reorder_state(state, new_order))

    def max_positions(self) -> int:
        """Longest target the model takes."""
        return self.max_target_positions


def _source_columns(weights: Optional[Tensor], encoder_out: Dict[str, List[Tensor]]) -> Optional[Tensor]:
    """Bring attention weights (B, L, S) back to the column order of the source batch."""
    if weights is None or not encoder_out.get("source_order"):
        return weights
    order = encoder_out["source_order"][0].unsqueeze(1).expand_as(weights)
    return torch.gather(weights, 2, order)
