"""Decoders: token embeddings, causal layers and an output, with fairseq's contract for incremental decoding."""

from typing import Any, Dict, Iterable, List, Optional, Tuple, Union

import torch
import torch.nn.functional as F
from fairseq.data import Dictionary
from fairseq.models import FairseqIncrementalDecoder
from omegaconf import DictConfig
from torch import Tensor, nn

from fairseq_mega.compat.files.settings import Role, options_of
from fairseq_mega.modules.config import MegaLayerConfig
from fairseq_mega.modules.documents import documents_of
from fairseq_mega.modules.dropout import postpone
from fairseq_mega.modules.embedding import TokenEmbedding
from fairseq_mega.modules.layer import PLAIN, LayerContext
from fairseq_mega.modules.mega_layer import MegaLayer
from fairseq_mega.modules.norm import build_norm
from fairseq_mega.modules.packed_linear import PackedLinear
from fairseq_mega.modules.padding import padding_of
from fairseq_mega.modules.parameter_cache import ParameterCache
from fairseq_mega.modules.relay import Relay
from fairseq_mega.modules.state import StreamState, reorder_state
from fairseq_mega.modules.trunk import Trunk, TrunkOutput
from fairseq_mega.ops.linear import linear
from fairseq_mega.ops.packed_linear import PackedMatrix, packed_linear

from .decoding_graph import GraphStream, as_state, has_graphs, on_graph
from .options.configurations import naming_flags
from .streams.scoring import Carry
from .tables import adaptive_softmax, output_projection

IncrementalState = Dict[str, Dict[str, Any]]
UNLIMITED = 10**9  # positions, if no part of the model limits their number


class DecoderStack(Trunk, FairseqIncrementalDecoder):
    """Token embeddings, causal layers, a final norm (pre-norm models only), and an output, plain or adaptive.

    Args:
        cfg: a completed configuration with the options DECODER_TABLES and --checkpoint-activations.
        dictionary: dictionary of the tokens.
        embedding: embedding of the tokens.
        layers: each follows :class:`fairseq_mega.modules.layer.Layer`.
        final_norm: norm of pre-norm models, else None.
        width: d.
        shared_output: use the embeddings as the output's matrix, too.

    Attributes:
        packed_output: replaces the output's matrix after :func:`.decode_weights.pack_weights`.
    """

    def __init__(
        self,
        cfg: DictConfig,
        dictionary: Dictionary,
        embedding: TokenEmbedding,
        layers: Iterable[nn.Module],
        final_norm: Optional[nn.Module],
        width: int,
        shared_output: bool,
    ) -> None:
        super().__init__(dictionary)
        self.padding_idx = dictionary.pad()
        self.document_token: Optional[int] = None  # token that begins a document if rows hold several documents
        self.embedding = embedding
        self.add_layers(layers, final_norm, cfg.checkpoint_activations)
        self.shared_output = shared_output
        self.packed_output: Optional[PackedLinear] = None
        self.adaptive_softmax = adaptive_softmax(cfg, dictionary, width, embedding.tokens)
        if self.adaptive_softmax is None and not shared_output:
            self.output_projection = output_projection(width, len(dictionary))

    def forward(
        self,
        prev_output_tokens: Tensor,
        encoder_out: Any = None,
        incremental_state: Optional[IncrementalState] = None,
        features_only: bool = False,
        **options: Any,
    ) -> Tuple[Tensor, Dict[str, Any]]:
        """Predict the next token at every position.

        Args:
            prev_output_tokens: (B, L) long, all tokens so far; with ``incremental_state`` only the tokens that earlier
                calls have not read are processed.
            encoder_out: result of the encoder; ignored by language models.
            incremental_state: fairseq's store for state during decoding.
            features_only: return the features (B, L, d) instead of logits.
            options: further arguments of ``extract_features``.

        Returns:
            Logits (B, L, V), with an adaptive softmax the features, and a dictionary.

        Raises:
            ValueError: if ``incremental_state`` has already read all tokens.
        """
        x, extra = self.extract_features(prev_output_tokens, encoder_out, incremental_state, **options)
        return (x if features_only else self.output_layer(x)), extra

    def output_layer(self, features: Tensor, **unused: Any) -> Tensor:
        """Project features (..., d) to logits (..., V); for an adaptive softmax return the features themselves."""
        if self.adaptive_softmax is not None:
            return features
        if self.packed_output is not None:
            return self.packed_output(features)
        matrix = self.output_matrix
        wide = features.dtype == matrix.dtype == torch.float32 and not torch.is_autocast_enabled(features.device.type)
        if wide and features.size(-2) == 1:
            return packed_linear(features, PackedMatrix(matrix, None))  # a step of decoding
        return linear(features, matrix)

    @property
    def output_matrix(self) -> Tensor:
        """Matrix of the output layer, (V, d)."""
        return self.embedding.table if self.shared_output else self.output_projection.weight

    @naming_flags("decoder", "max_target_positions")
    def run(self, tokens: Tensor, context: LayerContext = PLAIN, state: Optional[StreamState] = None) -> TrunkOutput:
        """Read tokens that follow those of ``state``.

        Args:
            tokens: (B, L) long, L any length; right padding ends a row.
            context: the encoder's output and the requested results; padding and documents are set here.
            state: state after the earlier tokens, None at the beginning of the streams.

        Raises:
            ValueError: if the simple relative bias does not cover the length.
        """
        padding_mask = padding_of(tokens, self.padding_idx)
        x = self.embedding(tokens, padding_mask)
        documents = documents_of(tokens, self.document_token, state is None and context.relay is None)
        return self.run_layers(x, context._replace(padding_mask=padding_mask, documents=documents), state)

    def run_incrementally(
        self, tokens: Tensor, incremental_state: Optional[IncrementalState], context: LayerContext = PLAIN
    ) -> TrunkOutput:
        """Run :meth:`run` with the state in fairseq's store; of all ``tokens`` so far, those already read are skipped.

        Raises:
            ValueError: if all tokens were read already, or the tokens end in padding (checked only on a CPU: the check
                would synchronize a GPU).
        """
        if incremental_state is None:
            return self.run(tokens, context)
        state = as_state(self.get_incremental_state(incremental_state, "layers"))
        known = self._known(incremental_state)
        if state is not None and tokens.size(1) <= known:
            raise ValueError(
                f"prev_output_tokens has {tokens.size(1)} tokens, but the incremental state has already read {known}: "
                f"give all tokens so far and at least one more, or begin with an empty incremental state"
            )
        unread = tokens[:, known:]
        # The first call only: in single steps a search pads finished beams.
        if unread.size(1) > 1 and tokens.device.type == "cpu" and bool(unread[:, -1].eq(self.padding_idx).any()):
            raise ValueError(
                "prev_output_tokens end in padding, so they cannot be continued: give texts of one length, or one text "
                "at a time"
            )
        out = self.run(unread, context._replace(return_state=True, given_up=True), state)
        self.set_incremental_state(incremental_state, "layers", out.state)
        return out

    def _known(self, incremental_state: IncrementalState) -> int:
        """Return how many tokens of a call were read by earlier calls."""
        state = self.get_incremental_state(incremental_state, "layers")
        return 0 if state is None else state.step - (self.get_incremental_state(incremental_state, "before") or 0)

    def go_on_from(self, incremental_state: IncrementalState, state: StreamState) -> None:
        """Store the state of earlier tokens, which are not passed again, in an empty store of fairseq."""
        self.set_incremental_state(incremental_state, "layers", state)
        self.set_incremental_state(incremental_state, "before", state.step)

    def reorder_incremental_state(self, incremental_state: IncrementalState, new_order: Tensor) -> None:
        """Select batch rows of the decoder's state, as beam search does."""
        state = self.get_incremental_state(incremental_state, "layers")
        self.set_incremental_state(incremental_state, "reordered", True)
        if state is not None and not (isinstance(state, GraphStream) and state.reorder(new_order)):
            self.set_incremental_state(incremental_state, "layers", reorder_state(as_state(state), new_order))


def mega_layers(
    config: MegaLayerConfig, count: int, affine_final_norm: bool = True
) -> Tuple[List[nn.Module], Optional[nn.Module]]:
    """Build MEGA layers of one shape, and the final norm of pre-norm models."""
    layers: List[nn.Module] = [MegaLayer(config) for _ in range(count)]
    if not config.normalize_before:
        return layers, None
    return layers, build_norm(config.norm, config.embed_dim, affine_final_norm)


class LanguageModelDecoder(DecoderStack):
    """Causal layers between an input table and a softmax, plain or adaptive.

    Args:
        cfg: a completed configuration with the options LANGUAGE_MODEL.
        dictionary, embedding, layers, final_norm: see :class:`DecoderStack`.
        longest: maximum length of a sequence, None for any.

    Attributes:
        use_graphs: whether CUDA graphs compute single steps where they can, see :mod:`.decoding_graph`.

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
        shared = cfg.share_decoder_input_output_embed
        super().__init__(cfg, dictionary, embedding, layers, final_norm, cfg.decoder_embed_dim, shared)
        self.use_graphs, self.graphs = True, ParameterCache()
        self.longest = UNLIMITED if longest is None else longest
        self.chunk_size = cfg.get("decoder_chunk_size", -1)
        self.settings = {name: str(cfg.get(name)) for name in options_of(Role.OUTPUTS) if cfg.get(name) is not None}
        if cfg.get("reset_at_document_ends", False):
            self.document_token = dictionary.eos()
        postpone(self, cfg.late_dropout)

    def forward(
        self,
        prev_output_tokens: Tensor,
        encoder_out: Any = None,
        incremental_state: Optional[IncrementalState] = None,
        features_only: bool = False,
        **options: Any,
    ) -> Tuple[Tensor, Dict[str, Any]]:
        """Predict the next token at every position, see :meth:`DecoderStack.forward`; single steps by a graph."""
        if incremental_state is not None and not features_only and has_graphs(prev_output_tokens.device):
            logits = self._step_on_graph(prev_output_tokens, incremental_state)
            if logits is not None:
                return logits, {"attn": None, "inner_states": None}
        return super().forward(prev_output_tokens, encoder_out, incremental_state, features_only, **options)

    def _step_on_graph(self, tokens: Tensor, incremental_state: IncrementalState) -> Optional[Tensor]:
        """Return the output for the one token of each row that earlier calls have not read; None where no graph can."""
        unread = tokens[:, self._known(incremental_state) :]
        if unread.size(1) != 1:
            return None
        state = self.get_incremental_state(incremental_state, "layers")
        reordered = bool(self.get_incremental_state(incremental_state, "reordered"))
        stream = on_graph(self, tokens.device, tokens.size(0), state, reordered)
        if stream is None:
            return None
        self.set_incremental_state(incremental_state, "layers", stream)
        return stream.advance(unread)

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
        """Run the decoder without its output layer; arguments as :meth:`forward`, returns features (B, L, d).

        Args:
            prev_output_tokens, encoder_out, incremental_state: see :meth:`forward`.
            carry: state of streams between calls: the tokens continue the streams numbered ``streams`` (one per row)
                after ``position`` tokens of each.
            relay: given if the tokens are this process's piece of longer sequences; the piece begins with a chunk.

        Raises:
            ValueError: if ``carry`` does not hold the streams up to ``position``, or as :meth:`forward`.
        """
        if carry is None:
            out = self.run_incrementally(prev_output_tokens, incremental_state, LayerContext(relay=relay))
        else:
            assert streams is not None
            state = carry.state(self, streams, position, prev_output_tokens.device)
            out = self.run(prev_output_tokens, LayerContext(return_state=True), state)
            assert out.state is not None
            carry.keep(self, streams, out.state)
        return out.hidden, {"attn": None, "inner_states": None}

    def advance(
        self, tokens: Tensor, state: Union[StreamState, GraphStream, None] = None
    ) -> Tuple[Tensor, Union[StreamState, GraphStream]]:
        """Read the next tokens of streams and predict the token after the last.

        Args:
            tokens: (B, L) long, L at least 1, without padding.
            state: state of the previous call, which remains as it is unless it is on a graph; None at the beginning.

        Returns:
            Log probabilities (B, V), and the new state: of bounded size for a model with chunks.
        """
        if isinstance(state, GraphStream) and tokens.size(1) == 1:
            stream = on_graph(self, tokens.device, tokens.size(0), state)
            if stream is not None:
                return self._log_probs(stream.advance(tokens)), stream
        out = self.run(tokens, LayerContext(return_state=True), as_state(state))
        assert out.state is not None
        return self._log_probs(self.output_layer(out.hidden[:, -1:])), out.state

    def _log_probs(self, output: Tensor) -> Tensor:
        """Return the log probabilities (B, V) of the output for one step."""
        if self.adaptive_softmax is not None:
            return self.adaptive_softmax.get_log_prob(output, None)[:, 0]
        logits = output[:, 0]
        return F.log_softmax(logits, dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32))

    def max_positions(self) -> int:
        """Longest sequence of the model."""
        return self.longest
