"""Options of the MEGA encoder that predicts masked symbols."""

from argparse import Namespace
from dataclasses import dataclass, field
from typing import Union

from omegaconf import DictConfig

from .completion import check_at_least, complete
from .dropouts import MegaDropouts
from .layers import MegaLayerOptions, check_embedding_norm
from .shape import LongestInput, MegaEncoderShape


@dataclass
class MegaMaskedLanguageModelConfig(MegaEncoderShape, MegaDropouts, MegaLayerOptions, LongestInput):
    """Command-line options of ``--arch mega_masked_lm``."""

    no_final_norm: bool = field(default=False, metadata={"help": "pre-norm layers without a norm after the last one"})
    no_hidden_layer: bool = field(default=False, metadata={"help": "a head without its hidden layer"})
    share_encoder_input_output_embed: bool = field(
        default=False, metadata={"help": "one table for the input's embeddings and the output"}
    )
    token_types: int = field(
        default=0, metadata={"help": "rows of a table whose first one is added to every embedding; 0 for none"}
    )


def complete_masked_language_model(cfg: Union[DictConfig, Namespace]) -> DictConfig:
    """Fill and check a configuration of any origin; see :func:`fairseq_mega.models.options.completion.complete`.

    Raises:
        ValueError: where options are out of range or contradict each other.
    """
    completed = complete(MegaMaskedLanguageModelConfig, cfg)
    check_embedding_norm(completed)
    check_at_least(completed, {"encoder_layers": 1, "max_positions": 1, "token_types": 0})
    return completed
