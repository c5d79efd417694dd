"""Decoder of the MEGA encoder-decoder, with incremental decoding."""

from typing import Any, Dict, List, Optional, Tuple

import torch
from fairseq.data import Dictionary
from omegaconf import DictConfig
from torch import Tensor, nn

from fairseq_mega.modules.layer import LayerContext

from .decoder_stack import DecoderStack, IncrementalState, mega_layers
from .options.configurations import layer_config
from .tables import adaptive_softmax, output_projection, token_embedding


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
        super().__init__(dictionary, embedding, *layers, cfg.checkpoint_activations)
        self.max_target_positions = cfg.max_target_positions
        self.shared_output = cfg.share_decoder_input_output_embed or cfg.share_all_embeddings
        self.adaptive_softmax = adaptive_softmax(cfg, dictionary, config.embed_dim, embed_tokens)
        if self.adaptive_softmax is None and not self.shared_output:
            self.output_projection = output_projection(config.embed_dim, len(dictionary))

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
            prev_output_tokens: (B, L) long, all tokens so far; with ``incremental_state`` only the tokens that earlier
                calls have not read are processed.
            encoder_out: result of the encoder.
            incremental_state: fairseq's store for state during decoding.
            features_only: return the features (B, L, d) instead of logits.

        Returns:
            Logits (B, L, V), with an adaptive softmax the features, and ``{"attn": [(B, L, S)]}``, the last layer's
            cross-attention weights, in evaluation (``[None]`` in training).

        Raises:
            ValueError: if ``incremental_state`` has already read all tokens.
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
        """Run the decoder without its output layer; arguments and result as :meth:`forward`."""
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
