"""Llama-style Transformer language model, the baseline of MEGALODON (Ma et al., NeurIPS 2024, section 4)."""

from fairseq.data import Dictionary
from fairseq.models import register_model
from omegaconf import DictConfig

from fairseq_mega.modules.embedding import TokenEmbedding
from fairseq_mega.modules.llama_layer import LlamaLayer, LlamaLayerConfig
from fairseq_mega.modules.norm import RMSNorm

from .decoder import LanguageModelDecoder
from .mega_lm import MegaLanguageModel
from .options.configurations import checked_config
from .options.option import of_side, with_options
from .options.table import LANGUAGE_MODEL, LLAMA
from .tables import decoder_table


@with_options(*of_side("decoder", LLAMA), *LANGUAGE_MODEL)
class LlamaLanguageModelConfig:
    """Command-line options of ``--arch llama_lm``."""


class LlamaLanguageModelDecoder(LanguageModelDecoder):
    """Causal Transformer layers with full attention between the tables of a language model.

    Args:
        cfg: a completed LlamaLanguageModelConfig.
        dictionary: of the tokens.
    """

    def __init__(self, cfg: DictConfig, dictionary: Dictionary) -> None:
        config = checked_config(LlamaLayerConfig, LLAMA, cfg, "decoder", "max_target_positions")
        width = config.embed_dim
        tokens = decoder_table(cfg, dictionary, cfg.decoder_input_dim or width, width)
        embedding = TokenEmbedding(tokens, cfg.dropout, scale=False, dim=width)
        layers = [LlamaLayer(config) for _ in range(cfg.decoder_layers)]
        super().__init__(cfg, dictionary, embedding, layers, RMSNorm(width))


@register_model("llama_lm", dataclass=LlamaLanguageModelConfig)
class LlamaLanguageModel(MegaLanguageModel):
    """Llama-style language model: ``--arch llama_lm``.

    The model reads streams, so it supports ``--task mega_language_modeling`` as well as ``--task language_modeling``.
    Its keys and values grow with the stream.
    """

    options = LlamaLanguageModelConfig
    decoder_class = LlamaLanguageModelDecoder
