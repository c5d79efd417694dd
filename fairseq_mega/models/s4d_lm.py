"""S4D language model, a baseline of recall and state tracking."""

from fairseq.data import Dictionary
from fairseq.models import register_model
from omegaconf import DictConfig

from fairseq_mega.modules.embedding import TokenEmbedding
from fairseq_mega.modules.norm import build_norm
from fairseq_mega.modules.s4d_layer import S4dLayer, S4dLayerConfig

from .decoder import LanguageModelDecoder
from .mega_lm import MegaLanguageModel
from .options.configurations import checked_config
from .options.option import of_side, with_options
from .options.table import LANGUAGE_MODEL, S4D
from .tables import decoder_table


@with_options(*of_side("decoder", S4D), *LANGUAGE_MODEL, normalization_type={"default": "layernorm"})
class S4dLanguageModelConfig:
    """Command-line options of ``--arch s4d_lm``."""


class S4dLanguageModelDecoder(LanguageModelDecoder):
    """Causal S4D layers between the tables of a language model.

    Args:
        cfg: a completed S4dLanguageModelConfig.
        dictionary: of the tokens.
    """

    def __init__(self, cfg: DictConfig, dictionary: Dictionary) -> None:
        config = checked_config(S4dLayerConfig, S4D, cfg, "decoder", "max_target_positions", bidirectional=False)
        width = config.embed_dim
        tokens = decoder_table(cfg, dictionary, cfg.decoder_input_dim or width, width)
        embedding = TokenEmbedding(tokens, cfg.dropout, scale=False, dim=width)
        layers = [S4dLayer(config) for _ in range(cfg.decoder_layers)]
        norm = build_norm(config.norm, width) if config.normalize_before else None
        super().__init__(cfg, dictionary, embedding, layers, norm)


@register_model("s4d_lm", dataclass=S4dLanguageModelConfig)
class S4dLanguageModel(MegaLanguageModel):
    """S4D language model: ``--arch s4d_lm`` and its presets, ``preset_names("s4d_lm")``.

    The model reads streams, so it supports ``--task mega_language_modeling`` as well as ``--task language_modeling``.
    """

    options = S4dLanguageModelConfig
    decoder_class = S4dLanguageModelDecoder
