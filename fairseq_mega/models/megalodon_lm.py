"""MEGALODON language model (Ma et al., NeurIPS 2024, section 4)."""

from argparse import Namespace
from functools import partial
from typing import Any, Callable, List, Optional, Union

import torch
from fairseq.data import Dictionary
from fairseq.models import register_model
from omegaconf import DictConfig
from torch import Tensor

from fairseq_mega.modules.drawn import Table, draw_tokens
from fairseq_mega.modules.embedding import TokenEmbedding
from fairseq_mega.modules.layer import PLAIN, LayerContext
from fairseq_mega.modules.megalodon.initialization import truncated_normal_
from fairseq_mega.modules.megalodon.layer import MegalodonLayer
from fairseq_mega.modules.megalodon.norms import TimestepNorm
from fairseq_mega.modules.state import StreamState, TrunkMemory
from fairseq_mega.modules.trunk import TrunkOutput

from .decoder import LanguageModelDecoder
from .mega_lm import MegaLanguageModel
from .options.configurations import check_at_least, megalodon_layer_config
from .options.option import Option, Role, of_side, with_options
from .options.table import DOCUMENTS, LANGUAGE_MODEL, MEGALODON
from .tables import decoder_table

BETWEEN = 2  # chunks between two refreshes of a statistics window
Run = Callable[[Tensor, LayerContext, Optional[StreamState]], TrunkOutput]
IMPOSSIBLE = -1e4  # logit with probability 0 in every precision; a smoothed loss stays finite


@with_options(
    *of_side("decoder", MEGALODON),
    Option("scale_embedding", bool, False, Role.OUTPUTS, "scale embeddings by sqrt(d)"),
    Option(
        "statistics_window",
        int,
        0,
        Role.RUN,
        "chunks of the window over which an evaluation of streams computes the norms' statistics: 6 as in the "
        "published code; 0 for the whole text, as in the paper",
    ),
    Option(
        "no_padding_logit",
        bool,
        False,
        Role.OUTPUTS,
        "exclude padding from the predictions, for models whose vocabulary had no padding, such as converted models of "
        "XuezheMax/megalodon",
    ),
    *LANGUAGE_MODEL,
    DOCUMENTS,
)
class MegalodonLanguageModelConfig:
    """Command-line options of ``--arch megalodon_lm``."""


def run_in_window(
    run: Run, window: int, chunk_size: int, tokens: Tensor, context: LayerContext, state: Optional[StreamState]
) -> TrunkOutput:
    """Read tokens of streams, and refresh the statistics of all timestep norms at regular distances.

    After ``window + 2`` chunks, and after every 2 more, the last ``window`` chunks are read again without state. The
    resulting statistics replace those of the whole text; EMA states, keys and values stay. The result does not depend
    on the pieces in which a text is read.

    Args:
        run: function that reads tokens without a window.
        window: chunks of the window.
        chunk_size: C.
        tokens: (B, L) tokens that follow the tokens of ``state``.
        context: context with ``return_state``.
        state: state of an earlier call, with its last tokens; None at the beginning.

    Source: the published code (inference), where the window is 6.
    """
    group, kept = BETWEEN * chunk_size, window * chunk_size
    outputs: List[Tensor] = []
    begin = 0
    while begin < tokens.size(1) or not outputs:
        step = 0 if state is None else state.step
        if state is not None and step >= kept + group and step % group == 0:
            state = state._replace(memory=_refreshed(run, state, context))
        piece = tokens[:, begin : begin + group - step % group]
        recent = piece if state is None or state.recent is None else torch.cat([state.recent, piece], dim=1)
        out = run(piece, context, state)
        assert out.state is not None
        state = out.state._replace(recent=recent[:, -kept:])
        outputs.append(out.hidden)
        begin += piece.size(1)
    return TrunkOutput(torch.cat(outputs, dim=1), state, None, [])


def _refreshed(run: Run, state: StreamState, context: LayerContext) -> TrunkMemory:
    """Return the memory of a state with the statistics of its last tokens only."""
    assert state.recent is not None
    fresh = run(state.recent, context, None).state
    assert fresh is not None
    layers = []
    for old, new in zip(state.memory.layers, fresh.memory.layers):
        assert old is not None and new is not None
        layers.append(old._replace(norm=new.norm))
    return TrunkMemory(tuple(layers), fresh.memory.final_norm)


class MegalodonLanguageModelDecoder(LanguageModelDecoder):
    """Causal MEGALODON layers between the tables of a language model.

    Args:
        cfg: a completed MegalodonLanguageModelConfig.
        dictionary: of the tokens.
    """

    def __init__(self, cfg: DictConfig, dictionary: Dictionary) -> None:
        config = megalodon_layer_config(cfg, "decoder", "max_target_positions")
        width = config.embed_dim
        tokens = decoder_table(cfg, dictionary, cfg.decoder_input_dim or width, width)
        if isinstance(tokens, Table) and not cfg.decoder_embed_path:
            tokens.drawn(partial(draw_tokens, draw=draw_table, padding=dictionary.pad()))
        layers = [MegalodonLayer(config, index) for index in range(cfg.decoder_layers)]
        final_norm = TimestepNorm(width, config.norm_groups)
        embedding = TokenEmbedding(tokens, cfg.dropout, cfg.scale_embedding, dim=width)
        super().__init__(cfg, dictionary, embedding, layers, final_norm)
        if self.adaptive_softmax is None and not self.shared_output:
            self.output_projection.drawn(draw_table)
        self.window = cfg.statistics_window
        self.excluded = dictionary.pad() if cfg.no_padding_logit else None

    def run(self, tokens: Tensor, context: LayerContext = PLAIN, state: Optional[StreamState] = None) -> TrunkOutput:
        """Run as :meth:`DecoderStack.run`; with a window, streams of an evaluation use :func:`run_in_window`."""
        if self.window == 0 or self.training or not context.return_state:
            return super().run(tokens, context, state)
        return run_in_window(super().run, self.window, self.chunk_size, tokens, context, state)

    def output_layer(self, features: Tensor, **unused: Any) -> Tensor:
        """Compute :meth:`DecoderStack.output_layer`; with ``--no-padding-logit`` padding has probability 0."""
        logits = super().output_layer(features)
        if self.excluded is not None:
            logits[..., self.excluded] = IMPOSSIBLE
        return logits


@register_model("megalodon_lm", dataclass=MegalodonLanguageModelConfig)
class MegalodonLanguageModel(MegaLanguageModel):
    """MEGALODON language model: ``--arch megalodon_lm`` and its presets, ``preset_names("megalodon_lm")``.

    Like MEGA's language model it reads streams of any length in pieces of any length, see
    :class:`LanguageModelDecoder`.
    """

    options = MegalodonLanguageModelConfig
    decoder_class = MegalodonLanguageModelDecoder

    @classmethod
    def complete(cls, cfg: Union[DictConfig, Namespace]) -> DictConfig:
        """Fill and check a configuration of any origin; errors as :meth:`MegaLanguageModel.complete`."""
        completed = super().complete(cfg)
        check_at_least(completed, {"statistics_window": 0})
        if completed.statistics_window > 0 and completed.decoder_chunk_size < 1:
            raise ValueError(
                f"--statistics-window {completed.statistics_window} counts chunks: give --decoder-chunk-size, or omit "
                f"--statistics-window"
            )
        if completed.no_padding_logit and completed.adaptive_softmax_cutoff is not None:
            raise ValueError("--no-padding-logit cannot be combined with --adaptive-softmax-cutoff: omit one of them")
        return completed


@torch.no_grad()
def draw_table(table: Tensor) -> None:
    """Fill a table (V, d) from Normal(0, 1/sqrt(d)), cut at three standard deviations, as published."""
    truncated_normal_(table, table.size(1) ** -0.5)
