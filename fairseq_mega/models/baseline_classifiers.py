"""Baselines of the Long Range Arena: Transformers (MEGA, Table 2, XFM), and S4D on the kernels of the complex EMA."""

from typing import Any

from fairseq.models import register_model
from omegaconf import DictConfig

from fairseq_mega.modules.classifier_inputs import PositionedEmbedding
from fairseq_mega.modules.embedding import TokenEmbedding
from fairseq_mega.modules.s4d_layer import S4dLayer, S4dLayerConfig
from fairseq_mega.modules.sequence_encoder import SequenceEncoder
from fairseq_mega.modules.transformer_layer import TransformerLayer, TransformerLayerConfig

from .classifier import OF_EVERY_CLASSIFIER, SequenceClassifier, encoder_of, input_table
from .options.configurations import checked_config
from .options.option import Option, Role, of_side, with_options
from .options.table import CLASSIFIER, S4D, TRANSFORMER


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

    options = TransformerClassifierConfig

    def build_encoder(self, cfg: DictConfig, task: Any) -> SequenceEncoder:
        """Build Transformer layers, all different or one."""
        config = checked_config(TransformerLayerConfig, TRANSFORMER, cfg, "encoder", "max_positions")
        count = 1 if cfg.share_encoder_layers else cfg.encoder_layers
        layers = [TransformerLayer(config) for _ in range(count)] * (cfg.encoder_layers // count)
        embedding = PositionedEmbedding(
            input_table(cfg, task), cfg.max_positions, cfg.dropout, cfg.encoder_sinusoidal_pos
        )
        return encoder_of(cfg, task, embedding, layers, config.norm)


@with_options(*of_side("encoder", S4D), *CLASSIFIER, **OF_EVERY_CLASSIFIER, classifier_layers={"default": 0})
class S4dClassifierConfig:
    """Command-line options of ``--arch s4d_lra``."""


@register_model("s4d_lra", dataclass=S4dClassifierConfig)
class S4dClassifier(SequenceClassifier):
    """S4D classifier: ``--arch s4d_lra`` and its presets, ``preset_names("s4d_lra")``.

    Source: Gu et al., "On the Parameterization and Initialization of Diagonal State Space Models" (NeurIPS 2022).
    """

    options = S4dClassifierConfig

    def build_encoder(self, cfg: DictConfig, task: Any) -> SequenceEncoder:
        """Build S4D layers over unscaled embeddings."""
        config = checked_config(S4dLayerConfig, S4D, cfg, "encoder", "max_positions")
        embedding = TokenEmbedding(input_table(cfg, task), cfg.dropout, scale=False)
        layers = [S4dLayer(config) for _ in range(cfg.encoder_layers)]
        return encoder_of(cfg, task, embedding, layers, config.norm)
