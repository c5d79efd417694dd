"""Transformer classifiers, the row that MEGA is compared with in the Long Range Arena (MEGA, Table 2, XFM)."""

from argparse import Namespace
from typing import Any, Union

from fairseq.models import register_model
from omegaconf import DictConfig

from fairseq_mega.modules.classifier_inputs import PositionedEmbedding
from fairseq_mega.modules.norm import build_norm
from fairseq_mega.modules.sequence_encoder import SequenceEncoder
from fairseq_mega.modules.transformer_layer import TransformerLayer

from .classifier import SequenceClassifier, input_table, padding_index
from .options.classifier import check_classifier
from .options.completion import complete
from .options.layer_config import transformer_layer_config
from .options.transformer_classifier import TransformerClassifierConfig


@register_model("transformer_lra", dataclass=TransformerClassifierConfig)
class TransformerClassifier(SequenceClassifier):
    """Transformer classifier: ``--arch transformer_lra`` and its presets, ``preset_names("transformer_lra")``.

    Those named ``transformer_lra_matched_...`` have MEGA's width and depth, and about its size.
    """

    @classmethod
    def build_model(cls, cfg: Union[DictConfig, Namespace], task: Any) -> "TransformerClassifier":
        """Build a model for a task that classifies.

        Raises:
            ValueError: where options are out of range or contradict each other or the task.
        """
        cfg = complete(TransformerClassifierConfig, cfg)
        check_classifier(cfg, task)
        config = transformer_layer_config(cfg)
        if cfg.share_encoder_layers:
            layers = [TransformerLayer(config)] * cfg.encoder_layers
        else:
            layers = [TransformerLayer(config) for _ in range(cfg.encoder_layers)]
        encoder = SequenceEncoder(
            PositionedEmbedding(input_table(cfg, task), cfg.max_positions, cfg.dropout, cfg.encoder_sinusoidal_pos),
            layers,
            build_norm(config.norm, config.embed_dim) if config.normalize_before else None,
            padding_index(task),
            checkpoint_activations=cfg.checkpoint_activations,
        )
        return cls(cfg, task, encoder)
