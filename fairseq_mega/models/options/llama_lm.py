"""Options of the Llama-style language model."""

from dataclasses import dataclass

from .dropouts import LayerDropouts
from .language_model import LanguageModelOptions
from .layers import RecomputationOptions, RotaryOptions
from .shape import LlamaDecoderShape


@dataclass
class LlamaLanguageModelConfig(
    LanguageModelOptions, LlamaDecoderShape, LayerDropouts, RotaryOptions, RecomputationOptions
):
    """Command-line options of ``--arch llama_lm``."""
