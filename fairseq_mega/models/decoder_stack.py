"""Base of every decoder: token embeddings and causal layers, with fairseq's contract for incremental decoding."""

from typing import Any, Dict, Iterable, List, Optional, Tuple

from fairseq.data import Dictionary
from fairseq.models import FairseqIncrementalDecoder
from torch import Tensor, nn

from fairseq_mega.modules.config import MegaLayerConfig
from fairseq_mega.modules.documents import documents_of
from fairseq_mega.modules.embedding import TokenEmbedding
from fairseq_mega.modules.layer import PLAIN, LayerContext
from fairseq_mega.modules.mega_layer import MegaLayer
from fairseq_mega.modules.norm import build_norm
from fairseq_mega.modules.padding import padding_of
from fairseq_mega.modules.state import StreamState, reorder_state
from fairseq_mega.modules.trunk import Trunk, TrunkOutput

from .decode_weights import OutputTable
from .options.configurations import naming_flags

IncrementalState = Dict[str, Dict[str, Any]]


class DecoderStack(Trunk, OutputTable, FairseqIncrementalDecoder):
    """Token embeddings, causal layers and a final norm (pre-norm models only).

    Args:
        dictionary: dictionary of the tokens.
        embedding: embedding of the tokens.
        layers: each follows :class:`fairseq_mega.modules.layer.Layer`.
        final_norm: norm of pre-norm models, else None.
        checkpoint_activations: recompute each layer in the backward pass.
    """

    def __init__(
        self,
        dictionary: Dictionary,
        embedding: TokenEmbedding,
        layers: Iterable[nn.Module],
        final_norm: Optional[nn.Module],
        checkpoint_activations: bool = False,
    ) -> None:
        super().__init__(dictionary)
        self.padding_idx = dictionary.pad()
        self.document_token: Optional[int] = None  # token that begins a document if rows hold several documents
        self.embedding = embedding
        self.packed_output = None
        self.add_layers(layers, final_norm, checkpoint_activations)

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
        state: Optional[StreamState] = self.get_incremental_state(incremental_state, "layers")
        known = 0 if state is None else state.step - (self.get_incremental_state(incremental_state, "before") or 0)
        if state is not None and tokens.size(1) <= known:
            raise ValueError(
                f"prev_output_tokens has {tokens.size(1)} tokens, but the incremental state has already read {known}: "
                f"give all tokens so far and at least one more, or begin with an empty incremental state"
            )
        unread = tokens[:, known:]
        if unread.size(1) > 1:  # the first call; in single steps a search pads finished beams
            self._refuse_right_padding(unread)
        out = self.run(unread, context._replace(return_state=True, given_up=True), state)
        self.set_incremental_state(incremental_state, "layers", out.state)
        return out

    def go_on_from(self, incremental_state: IncrementalState, state: StreamState) -> None:
        """Store the state of earlier tokens, which are not passed again, in an empty store of fairseq."""
        self.set_incremental_state(incremental_state, "layers", state)
        self.set_incremental_state(incremental_state, "before", state.step)

    def _refuse_right_padding(self, tokens: Tensor) -> None:
        if tokens.device.type == "cpu" and bool((tokens[:, -1].eq(self.padding_idx)).any()):
            raise ValueError(
                "prev_output_tokens end in padding, so they cannot be continued: give texts of one length, or one text "
                "at a time"
            )

    def reorder_incremental_state(self, incremental_state: IncrementalState, new_order: Tensor) -> None:
        """Select batch rows of the decoder's state, as beam search does."""
        state = self.get_incremental_state(incremental_state, "layers")
        if state is not None:
            self.set_incremental_state(incremental_state, "layers", reorder_state(state, new_order))


def mega_layers(
    config: MegaLayerConfig, count: int, affine_final_norm: bool = True
) -> Tuple[List[nn.Module], Optional[nn.Module]]:
    """Build MEGA layers of one shape, and the final norm of pre-norm models."""
    layers: List[nn.Module] = [MegaLayer(config) for _ in range(count)]
    if not config.normalize_before:
        return layers, None
    return layers, build_norm(config.norm, config.embed_dim, affine_final_norm)
