"""S4D classifiers of the Long Range Arena: a diagonal state space on the kernels of the complex EMA."""

from argparse import Namespace
from typing import Any, Union

from fairseq.models import register_model
from omegaconf import DictConfig

from fairseq_mega.modules.embedding import TokenEmbedding
from fairseq_mega.modules.s4d_layer import S4dLayer, S4dLayerConfig

from .classifier import OF_EVERY_CLASSIFIER, SequenceClassifier, check_classifier, encoder_of, input_table
from .options.configurations import checked_config, complete
from .options.option import of_side, with_options
from .options.table import CLASSIFIER, S4D


@with_options(*of_side("encoder", S4D), *CLASSIFIER, **OF_EVERY_CLASSIFIER, classifier_layers={"default": 0})
class S4dClassifierConfig:
    """Command-line options of ``--arch s4d_lra``."""


@register_model("s4d_lra", dataclass=S4dClassifierConfig)
class S4dClassifier(SequenceClassifier):
    """S4D classifier: ``--arch s4d_lra`` and its presets, ``preset_names("s4d_lra")``.

    Source: Gu et al., "On the Parameterization and Initialization of Diagonal State Space Models" (NeurIPS 2022).
    """

    @classmethod
    def build_model(cls, cfg: Union[DictConfig, Namespace], task: Any) -> "S4dClassifier":
        """Build a model for a task that classifies.

        Raises:
            ValueError: where options are out of range or contradict each other or the task.
        """
        cfg = complete(S4dClassifierConfig, cfg)
        check_classifier(cfg, task)
        config = checked_config(S4dLayerConfig, S4D, cfg, "encoder", "max_positions")
        embedding = TokenEmbedding(input_table(cfg, task), cfg.dropout, scale=False)
        layers = [S4dLayer(config) for _ in range(cfg.encoder_layers)]
        return cls(cfg, task, encoder_of(cfg, task, embedding, layers, config.norm))
