"""What every MEGA decoder does: embed tokens, run causal layers over them, and remember the past of a stream."""

from typing import Any, Dict, List, NamedTuple, Optional

from fairseq.data import Dictionary
from fairseq.models import FairseqIncrementalDecoder
from torch import Tensor, nn

from fairseq_mega.modules.config import MegaLayerConfig
from fairseq_mega.modules.embedding import TokenEmbedding
from fairseq_mega.modules.mega_layer import MegaLayer
from fairseq_mega.modules.norm import build_norm
from fairseq_mega.modules.padding import padding_of, zero_padding
from fairseq_mega.modules.state import LayerState, reorder_state

from .options.flags import naming_flags

IncrementalState = Dict[str, Dict[str, Any]]


class DecoderState(NamedTuple):
    """Memory of a whole decoder: how many tokens it has read, and what each layer remembers of them."""

    step: int
    layers: List[LayerState]


class StackOutput(NamedTuple):
    """What the layers of a decoder return."""

    hidden: Tensor  # (B, L, d)
    state: Optional[DecoderState]
    cross_weights: Optional[Tensor]  # (B, L, S), of the last layer


class DecoderStack(FairseqIncrementalDecoder):
    """Token embeddings, causal MEGA layers and a final norm (pre-norm models only).

    Args:
        dictionary: of the tokens.
        config: shape of each layer.
        layers: how many.
        embedding: of the tokens.
        affine_final_norm: whether the final norm has parameters.
    """

    def __init__(
        self,
        dictionary: Dictionary,
        config: MegaLayerConfig,
        layers: int,
        embedding: TokenEmbedding,
        affine_final_norm: bool = True,
    ) -> None:
        super().__init__(dictionary)
        self.padding_idx = dictionary.pad()
        self.embedding = embedding
        self.layers = nn.ModuleList(MegaLayer(config) for _ in range(layers))
        self.final_norm: Optional[nn.Module] = None
        if config.normalize_before:
            self.final_norm = build_norm(config.norm, config.embed_dim, affine_final_norm)

    @naming_flags("decoder", "max_target_positions")
    def run(
        self,
        tokens: Tensor,
        state: Optional[DecoderState] = None,
        return_state: bool = False,
        need_weights: bool = False,
        **inputs: Any,
    ) -> StackOutput:
        """Read tokens that follow those of ``state``.

        Args:
            tokens: (B, L) long, L any length; padded where nothing follows in that row.
            state: memory of the tokens before, None at the beginning of the streams.
            return_state: also return the memory after the last token.
            need_weights: also return the last layer's cross-attention weights.
            **inputs: further inputs of every layer, see :class:`MegaLayer`.

        Raises:
            ValueError: if the simple relative bias does not cover the length.
        """
        padding_mask = padding_of(tokens, self.padding_idx)
        x = self.embedding(tokens, padding_mask)
        new_states: List[LayerState] = []
        weights: Optional[Tensor] = None
        for index, layer in enumerate(self.layers):
            out = layer(
                x,
                padding_mask=padding_mask,
                state=None if state is None else state.layers[index],
                return_state=return_state,
                need_weights=need_weights and index + 1 == len(self.layers),
                **inputs,
            )
            x, weights = out.hidden, out.cross_weights
            if out.state is not None:
                new_states.append(out.state)
        if self.final_norm is not None:
            x = self.final_norm(x)
        read = tokens.size(1) + (0 if state is None else state.step)
        return StackOutput(
            zero_padding(x, padding_mask),
            DecoderState(read, new_states) if return_state else None,
            weights,
        )

    def run_incrementally(
        self, tokens: Tensor, incremental_state: Optional[IncrementalState], **inputs: Any
    ) -> StackOutput:
        """As :meth:`run`, with the memory in fairseq's store; ``tokens`` are all so far, the known ones are skipped.

        Raises:
            ValueError: if there is no token that the memory does not hold.
        """
        if incremental_state is None:
            return self.run(tokens, **inputs)
        state = self.get_incremental_state(incremental_state, "layers")
        if state is not None and tokens.size(1) <= state.step:
            raise ValueError(
                f"prev_output_tokens has {tokens.size(1)} tokens, but the incremental state has read {state.step} "
                f"already: give all tokens so far and at least one more, or begin again with an empty incremental state"
            )
        unread = tokens if state is None else tokens[:, state.step :]
        out = self.run(unread, state, return_state=True, **inputs)
        self.set_incremental_state(incremental_state, "layers", out.state)
        return out

    def reorder_incremental_state(self, incremental_state: IncrementalState, new_order: Tensor) -> None:
        """Select batch rows of the decoder's memory, as beam search does."""
        state = self.get_incremental_state(incremental_state, "layers")
        if state is not None:
            self.set_incremental_state(incremental_state, "layers", reorder_state(state, new_order))
