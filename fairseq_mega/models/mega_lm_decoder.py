"""Decoders of language models: plain or adaptive tables, streams of any length."""

from argparse import Namespace
from typing import Any, Dict, Iterable, List, Optional, Tuple, Type, Union

import torch
import torch.nn.functional as F
from fairseq.data import Dictionary
from fairseq.dataclass import FairseqDataclass
from omegaconf import DictConfig
from torch import Tensor, nn

from fairseq_mega.compat.files.settings import Role, options_of
from fairseq_mega.modules.dropout import postpone
from fairseq_mega.modules.embedding import TokenEmbedding
from fairseq_mega.modules.layer import LayerContext
from fairseq_mega.modules.relay import Relay
from fairseq_mega.modules.state import StreamState

from .decoder_stack import DecoderStack, IncrementalState, mega_layers
from .options.configurations import check_at_least, complete, layer_config
from .streams.scoring import Carry
from .tables import adaptive_softmax, check_tables, decoder_table, output_projection, token_embedding

UNLIMITED = 10**9  # positions, if no part of the model limits their number


def complete_language_model(dataclass_type: Type[FairseqDataclass], cfg: Union[DictConfig, Namespace]) -> DictConfig:
    """Fill and check a configuration of any origin; see :func:`fairseq_mega.models.options.configurations.complete`.

    Raises:
        ValueError: where options are out of range or contradict each other.
    """
    completed = complete(dataclass_type, cfg)
    given = vars(cfg) if isinstance(cfg, Namespace) else cfg
    if given.get("max_target_positions") is None:
        completed.max_target_positions = given.get("tokens_per_sample") or completed.max_target_positions
    check_at_least(completed, {"decoder_layers": 1, "late_dropout": 0})
    check_tables(completed)
    if completed.share_decoder_input_output_embed and completed.decoder_input_dim not in (
        None,
        completed.decoder_embed_dim,
    ):
        raise ValueError(
            f"--decoder-input-dim {completed.decoder_input_dim} differs from --decoder-embed-dim "
            f"{completed.decoder_embed_dim}, and --share-decoder-input-output-embed requires equal widths; leave one "
            f"of the two options out"
        )
    return completed


class LanguageModelDecoder(DecoderStack):
    """Causal layers between an input table and a softmax, plain or adaptive.

    Args:
        cfg: a completed configuration with the options LANGUAGE_MODEL.
        dictionary: of the tokens.
        embedding: over the input table.
        layers: each follows :class:`fairseq_mega.modules.layer.Layer`.
        final_norm: of pre-norm models, else None.
        longest: maximum length of a sequence, None for any.

    Source: MEGA (Ma et al., ICLR 2023), section 4.3; adaptive tables: Baevski and Auli (ICLR 2019).
    """

    def __init__(
        self,
        cfg: DictConfig,
        dictionary: Dictionary,
        embedding: TokenEmbedding,
        layers: Iterable[nn.Module],
        final_norm: Optional[nn.Module],
        longest: Optional[int] = None,
    ) -> None:
        super().__init__(dictionary, embedding, layers, final_norm, cfg.checkpoint_activations)
        width = cfg.decoder_embed_dim
        self.longest = UNLIMITED if longest is None else longest
        self.chunk_size = cfg.get("decoder_chunk_size", -1)
        self.settings = {name: str(cfg.get(name)) for name in options_of(Role.OUTPUTS) if cfg.get(name) is not None}
        if cfg.get("reset_at_document_ends", False):
            self.document_token = dictionary.eos()
        self.shared_output = cfg.share_decoder_input_output_embed
        self.adaptive_softmax = adaptive_softmax(cfg, dictionary, width, embedding.tokens)
        if self.adaptive_softmax is None and not self.shared_output:
            self.output_projection = output_projection(width, len(dictionary))
        postpone(self, cfg.late_dropout)

    def forward(
        self,
        prev_output_tokens: Tensor,
        encoder_out: Any = None,
        incremental_state: Optional[IncrementalState] = None,
        features_only: bool = False,
        carry: Optional[Carry] = None,
        streams: Optional[List[int]] = None,
        position: int = 0,
        relay: Optional[Relay] = None,
        **unused: Any,
    ) -> Tuple[Tensor, Dict[str, Any]]:
        """Predict the next token at every position.

        Args:
            prev_output_tokens: (B, L) long, right padded; with ``incremental_state`` all tokens read so far.
            encoder_out: ignored; fairseq's generators pass it.
            incremental_state: fairseq's store for state during decoding.
            features_only: return the features (B, L, d) instead of logits.
            carry: state of streams between calls: the tokens continue the streams numbered ``streams`` (one per row)
                after ``position`` tokens of each.
            relay: given if the tokens are this process's piece of longer sequences; the piece begins with a chunk.

        Returns:
            Logits (B, L, V), with an adaptive softmax the features (B, L, d), and a dictionary.

        Raises:
            ValueError: if ``carry`` does not hold the streams up to ``position``, or ``incremental_state`` has already
                read all tokens.
        """
        x, extra = self.extract_features(
            prev_output_tokens, encoder_out, incremental_state, carry, streams, position, relay
        )
        return (x if features_only else self.output_layer(x)), extra

    def extract_features(
        self,
        prev_output_tokens: Tensor,
        encoder_out: Any = None,
        incremental_state: Optional[IncrementalState] = None,
        carry: Optional[Carry] = None,
        streams: Optional[List[int]] = None,
        position: int = 0,
        relay: Optional[Relay] = None,
        **unused: Any,
    ) -> Tuple[Tensor, Dict[str, Any]]:
        """Run the decoder without its output layer; arguments as :meth:`forward`, returns features (B, L, d)."""
        if carry is None:
            out = self.run_incrementally(prev_output_tokens, incremental_state, LayerContext(relay=relay))
        else:
            assert streams is not None
            state = carry.state(self, streams, position, prev_output_tokens.device)
            out = self.run(prev_output_tokens, LayerContext(return_state=True), state)
            assert out.state is not None
            carry.keep(self, streams, out.state)
        return out.hidden, {"attn": None, "inner_states": None}

    def advance(self, tokens: Tensor, state: Optional[StreamState] = None) -> Tuple[Tensor, StreamState]:
        """Read the next tokens of streams and predict the token after the last.

        Args:
            tokens: (B, L) long, L at least 1, without padding.
            state: state of the previous call; None at the beginning.

        Returns:
            Log probabilities (B, V), and the new state: of bounded size for a model with chunks.
        """
        out = self.run(tokens, LayerContext(return_state=True), state)
        assert out.state is not None
        last = out.hidden[:, -1:]
        if self.adaptive_softmax is not None:
            return self.adaptive_softmax.get_log_prob(last, None)[:, 0], out.state
        logits = self.output_layer(last)[:, 0]
        return F.log_softmax(logits, dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32)), out.state

    def max_positions(self) -> int:
        """Longest sequence of the model."""
        return self.longest


class MegaLanguageModelDecoder(LanguageModelDecoder):
    """Causal MEGA layers between the tables of a language model.

    Args:
        cfg: a completed MegaLanguageModelConfig.
        dictionary: of the tokens.
    """

    def __init__(self, cfg: DictConfig, dictionary: Dictionary) -> None:
        config = layer_config(cfg, "decoder", "max_target_positions")
        width = config.embed_dim
        embedding = token_embedding(cfg, decoder_table(cfg, dictionary, cfg.decoder_input_dim or width, width), width)
        layers = mega_layers(config, cfg.decoder_layers, not cfg.no_affine_final_norm)
        unlimited = config.chunk_size > 0 or config.relative_bias == "rotary"
        super().__init__(cfg, dictionary, embedding, *layers, None if unlimited else cfg.max_target_positions)
