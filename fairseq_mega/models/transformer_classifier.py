"""Transformer classifiers, the row that MEGA is compared with in the Long Range Arena (MEGA, Table 2, XFM)."""

from argparse import Namespace
from dataclasses import dataclass, field
from typing import Any, Union

from fairseq.models import register_model
from omegaconf import DictConfig

from fairseq_mega.modules.classifier_inputs import PositionedEmbedding
from fairseq_mega.modules.norm import build_norm
from fairseq_mega.modules.sequence_encoder import SequenceEncoder
from fairseq_mega.modules.transformer_layer import TransformerLayer, TransformerLayerConfig

from .classifier import ClassifierOptions, SequenceClassifier, check_classifier, input_table, padding_index
from .mega_config import ActivationChoice, complete


@dataclass
class TransformerClassifierConfig(ClassifierOptions):
    """Command-line options of ``--arch transformer_lra``."""

    encoder_embed_dim: int = field(default=128, metadata={"help": "width d"})
    encoder_ffn_embed_dim: int = field(default=512, metadata={"help": "inner width of the FFN"})
    encoder_attention_heads: int = field(
        default=4, metadata={"help": "attention heads", "argparse_alias": "--attention-heads"}
    )
    encoder_layers: int = field(default=4, metadata={"help": "number of layers"})
    activation_fn: ActivationChoice = field(default="gelu", metadata={"help": "activation of the FFN"})
    dropout: float = field(default=0.1, metadata={"help": "dropout of embeddings and of each sub-layer's output"})
    attention_dropout: float = field(default=0.0, metadata={"help": "dropout of attention weights"})
    activation_dropout: float = field(
        default=0.0, metadata={"help": "dropout after the activation of the FFN", "argparse_alias": "--act-dropout"}
    )
    normalize_before: bool = field(
        default=False,
        metadata={
            "help": "norm before each sub-layer instead of after it",
            "argparse_alias": "--encoder-normalize-before",
        },
    )
    checkpoint_activations: bool = field(
        default=False,
        metadata={"help": "recompute each layer in the backward pass: less memory, a third more time"},
    )


@register_model("transformer_lra", dataclass=TransformerClassifierConfig)
class TransformerClassifier(SequenceClassifier):
    """Transformer classifier with learned positions: ``--arch transformer_lra`` and its presets,
    ``preset_names("transformer_lra")``.
    """

    @classmethod
    def build_model(cls, cfg: Union[DictConfig, Namespace], task: Any) -> "TransformerClassifier":
        """Build a model for a task that classifies.

        Raises:
            ValueError: where options are out of range or contradict each other or the task.
        """
        cfg = complete(TransformerClassifierConfig, cfg)
        check_classifier(cfg, task)
        config = TransformerLayerConfig(
            embed_dim=cfg.encoder_embed_dim,
            heads=cfg.encoder_attention_heads,
            ffn_dim=cfg.encoder_ffn_embed_dim,
            activation=str(cfg.activation_fn),
            normalize_before=cfg.normalize_before,
            dropout=cfg.dropout,
            attention_dropout=cfg.attention_dropout,
            activation_dropout=cfg.activation_dropout,
            checkpoint_activations=cfg.checkpoint_activations,
        )
        encoder = SequenceEncoder(
            PositionedEmbedding(input_table(cfg, task), cfg.max_positions, cfg.dropout, "--max-positions"),
            [TransformerLayer(config) for _ in range(cfg.encoder_layers)],
            build_norm(config.norm, config.embed_dim) if config.normalize_before else None,
            padding_index(task),
        )
        return cls(cfg, task, encoder)
