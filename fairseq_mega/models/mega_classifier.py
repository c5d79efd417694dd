"""MEGA classifiers of the Long Range Arena and of raw speech (MEGA, Ma et al., ICLR 2023, 4.1, 4.2 and Table 8)."""

from argparse import Namespace
from typing import Any, Optional, Union

from fairseq.models import register_model
from omegaconf import DictConfig

from fairseq_mega.modules.embedding import TokenEmbedding
from fairseq_mega.modules.mega_layer import MegaLayer
from fairseq_mega.modules.sequence_encoder import SequenceEncoder

from .classifier import OF_EVERY_CLASSIFIER, SequenceClassifier, encoder_of, input_table
from .options.configurations import check_embedding_norm, layer_config
from .options.option import Option, Role, of_side, with_options
from .options.table import CLASSIFIER, MEGA


@with_options(
    *of_side("encoder", MEGA),
    Option(
        "act_dropout",
        Optional[float],
        None,
        Role.TRAINING,
        "sets --hidden-dropout and --activation-dropout, as published",
    ),
    *CLASSIFIER,
    **OF_EVERY_CLASSIFIER,
    encoder_hidden_dim={"default": 256},
    encoder_z_dim={"default": 64, "alias": "--z-dim"},
    encoder_n_dim={"alias": "--n-dim"},
    encoder_chunk_size={"alias": "--chunk-size"},
    normalization_type={"alias": "--norm-type"},
    no_scale_embedding={"help": "no effect: classifiers never scale their embeddings"},
)
class MegaClassifierConfig:
    """Command-line options of ``--arch mega_lra``; the published names of the options are accepted, too."""


@register_model("mega_lra", dataclass=MegaClassifierConfig)
class MegaClassifier(SequenceClassifier):
    """MEGA classifier: ``--arch mega_lra`` and its presets, ``preset_names("mega_lra")``."""

    options = MegaClassifierConfig

    @classmethod
    def complete(cls, cfg: Union[DictConfig, Namespace]) -> DictConfig:
        """Fill and check a configuration of any origin; raise ValueError where options contradict each other."""
        completed = super().complete(cfg)
        check_embedding_norm(completed)
        if completed.act_dropout is not None:
            completed.hidden_dropout = completed.activation_dropout = completed.act_dropout
        return completed

    def build_encoder(self, cfg: DictConfig, task: Any) -> SequenceEncoder:
        """Build MEGA layers over unscaled embeddings."""
        config = layer_config(cfg, "encoder", "max_positions")
        norm = config.norm if cfg.normalize_embedding else None
        embedding = TokenEmbedding(input_table(cfg, task), cfg.dropout, scale=False, norm=norm)
        layers = [MegaLayer(config) for _ in range(cfg.encoder_layers)]
        return encoder_of(cfg, task, embedding, layers, config.norm, config.chunk_size)
