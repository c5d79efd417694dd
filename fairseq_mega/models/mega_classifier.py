"""MEGA classifiers of the Long Range Arena and of raw speech (MEGA, Ma et al., ICLR 2023, 4.1, 4.2 and Table 8)."""

from argparse import Namespace
from typing import Any, Union

from fairseq.models import register_model
from omegaconf import DictConfig

from fairseq_mega.modules.embedding import TokenEmbedding
from fairseq_mega.modules.mega_layer import MegaLayer

from .classifier import SequenceClassifier, encoder_of, input_table
from .options.classifier import check_classifier
from .options.layer_config import layer_config
from .options.mega_classifier import MegaClassifierConfig, complete_classifier


@register_model("mega_lra", dataclass=MegaClassifierConfig)
class MegaClassifier(SequenceClassifier):
    """MEGA classifier: ``--arch mega_lra`` and its presets, ``preset_names("mega_lra")``."""

    @classmethod
    def build_model(cls, cfg: Union[DictConfig, Namespace], task: Any) -> "MegaClassifier":
        """Build a model for a task that classifies.

        Raises:
            ValueError: where options are out of range or contradict each other or the task.
        """
        cfg = complete_classifier(cfg)
        check_classifier(cfg, task)
        config = layer_config(cfg, "encoder", "max_positions")
        norm = config.norm if cfg.normalize_embedding else None
        embedding = TokenEmbedding(input_table(cfg, task), cfg.dropout, scale=False, norm=norm)
        layers = [MegaLayer(config) for _ in range(cfg.encoder_layers)]
        return cls(cfg, task, encoder_of(cfg, task, embedding, layers, config.norm, config.chunk_size))
