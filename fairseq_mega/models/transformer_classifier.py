"""Transformer classifiers, the baseline of MEGA in the Long Range Arena (MEGA, Table 2, XFM)."""

from argparse import Namespace
from typing import Any, Union

from fairseq.models import register_model
from omegaconf import DictConfig

from fairseq_mega.modules.classifier_inputs import PositionedEmbedding
from fairseq_mega.modules.transformer_layer import TransformerLayer, TransformerLayerConfig

from .classifier import OF_EVERY_CLASSIFIER, SequenceClassifier, check_classifier, encoder_of, input_table
from .options.configurations import checked_config, complete
from .options.option import Option, Role, of_side, with_options
from .options.table import CLASSIFIER, TRANSFORMER


@with_options(
    *of_side("encoder", TRANSFORMER),
    Option(
        "encoder_sinusoidal_pos", bool, False, Role.OUTPUTS, "sinusoidal positions instead of learned position vectors"
    ),
    Option("share_encoder_layers", bool, False, Role.TENSORS, "one set of weights for all layers"),
    *CLASSIFIER,
    **OF_EVERY_CLASSIFIER,
    activation_dropout={"alias": "--act-dropout"},
)
class TransformerClassifierConfig:
    """Command-line options of ``--arch transformer_lra``."""


@register_model("transformer_lra", dataclass=TransformerClassifierConfig)
class TransformerClassifier(SequenceClassifier):
    """Transformer classifier: ``--arch transformer_lra`` and its presets, ``preset_names("transformer_lra")``.

    The presets ``transformer_lra_matched_...`` have MEGA's width and depth, and about its size.
    """

    @classmethod
    def build_model(cls, cfg: Union[DictConfig, Namespace], task: Any) -> "TransformerClassifier":
        """Build a model for a task that classifies.

        Raises:
            ValueError: where options are out of range or contradict each other or the task.
        """
        cfg = complete(TransformerClassifierConfig, cfg)
        check_classifier(cfg, task)
        config = checked_config(TransformerLayerConfig, TRANSFORMER, cfg, "encoder", "max_positions")
        if cfg.share_encoder_layers:
            layers = [TransformerLayer(config)] * cfg.encoder_layers
        else:
            layers = [TransformerLayer(config) for _ in range(cfg.encoder_layers)]
        table = input_table(cfg, task)
        embedding = PositionedEmbedding(table, cfg.max_positions, cfg.dropout, cfg.encoder_sinusoidal_pos)
        return cls(cfg, task, encoder_of(cfg, task, embedding, layers, config.norm))
