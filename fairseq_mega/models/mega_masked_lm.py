"""Bidirectional MEGA encoder that predicts masked tokens, for fairseq's task masked_lm."""

from argparse import Namespace
from typing import Any, Dict, Optional, Tuple, Union

from fairseq.models import BaseFairseqModel, register_model
from omegaconf import DictConfig
from torch import Tensor

from fairseq_mega.modules.mega_layer import MegaLayer
from fairseq_mega.modules.norm import build_norm
from fairseq_mega.modules.sequence_encoder import SequenceEncoder
from fairseq_mega.modules.token_head import TokenHead

from .checkpoints import ReadsOlderCheckpoints
from .classifier import log_padding
from .options.configurations import check_at_least, check_embedding_norm, complete, layer_config, naming_flags
from .options.option import Option, Role, of_side, with_options
from .options.table import LONGEST, MEGA, PAD_BATCHES
from .tables import plain_table, token_embedding


@with_options(
    *of_side("encoder", MEGA),
    LONGEST,
    Option("no_final_norm", bool, False, Role.TENSORS, "no norm after the last pre-norm layer"),
    Option("no_hidden_layer", bool, False, Role.TENSORS, "no hidden layer in the head"),
    Option("share_encoder_input_output_embed", bool, False, Role.TENSORS, "one table for input and output embeddings"),
    PAD_BATCHES,
    Option(
        "token_types",
        int,
        0,
        Role.TENSORS,
        "rows of a table whose first row is added to every embedding; 0 for no table",
    ),
)
class MegaMaskedLanguageModelConfig:
    """Command-line options of ``--arch mega_masked_lm``."""


@register_model("mega_masked_lm", dataclass=MegaMaskedLanguageModelConfig)
class MegaMaskedLanguageModel(ReadsOlderCheckpoints, BaseFairseqModel):
    """MEGA encoder with a head: ``--arch mega_masked_lm`` and its presets, ``preset_names("mega_masked_lm")``.

    Source: MEGA (Ma et al., ICLR 2023), section 3, bidirectional; head: TokenHead.
    """

    def __init__(self, encoder: SequenceEncoder, prediction: TokenHead, longest: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.prediction = prediction
        self.longest = longest

    @classmethod
    def build_model(cls, cfg: Union[DictConfig, Namespace], task: Any) -> "MegaMaskedLanguageModel":
        """Build a model for fairseq's task masked_lm.

        Raises:
            ValueError: where options are out of range or contradict each other.
        """
        cfg = complete(MegaMaskedLanguageModelConfig, cfg)
        check_embedding_norm(cfg)
        check_at_least(cfg, {"encoder_layers": 1, "max_positions": 1, "token_types": 0})
        config = layer_config(cfg, "encoder", "max_positions")
        dictionary = task.source_dictionary
        with_norm = config.normalize_before and not cfg.no_final_norm
        table = plain_table(dictionary, config.embed_dim)
        encoder = SequenceEncoder(
            token_embedding(cfg, table, config.embed_dim, cfg.token_types),
            [MegaLayer(config) for _ in range(cfg.encoder_layers)],
            build_norm(config.norm, config.embed_dim) if with_norm else None,
            dictionary.pad(),
            config.chunk_size,
            config.checkpoint_activations,
            cfg.pad_batches,
        )
        log_padding(encoder)
        shared = table if cfg.share_encoder_input_output_embed else None
        head = TokenHead(config.embed_dim, len(dictionary), not cfg.no_hidden_layer, shared)
        return cls(encoder, head, cfg.max_positions)

    @naming_flags("encoder", "max_positions")
    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Optional[Tensor] = None,
        masked_tokens: Optional[Tensor] = None,
        **unused: Any,
    ) -> Tuple[Tensor, Dict[str, Any]]:
        """Compute the logits of the token at each position.

        Args:
            src_tokens: (B, L) long, padded on the right.
            src_lengths: (B,), ignored.
            masked_tokens: (B, L) bool, the requested positions; None for all.

        Returns:
            (B, L, V), or (N, V) for N requested positions; and an empty dictionary, as fairseq requires.

        Raises:
            ValueError: if the simple relative bias does not cover the length.
        """
        x, _ = self.encoder(src_tokens)
        return self.prediction(x if masked_tokens is None else x[masked_tokens]), {}

    def get_normalized_probs(
        self, net_output: Tuple[Tensor, Dict[str, Any]], log_probs: bool, sample: Optional[Dict[str, Any]] = None
    ) -> Tensor:
        """Return (log) probabilities of the result of :meth:`forward`, at least in float32."""
        logits = net_output[0]
        logits = logits if logits.element_size() > 2 else logits.float()
        return logits.log_softmax(-1) if log_probs else logits.softmax(-1)

    def max_positions(self) -> int:
        """Longest input of the model."""
        return self.longest
