"""Options and checks of the MEGA language model."""

from argparse import Namespace
from dataclasses import dataclass, field
from typing import Union

from omegaconf import DictConfig

from . import language_model
from .dropouts import MegaDropouts
from .layers import MegaLayerOptions, check_embedding_norm
from .shape import MegaDecoderShape


@dataclass
class MegaLanguageModelConfig(
    language_model.LanguageModelOptions,
    language_model.DocumentOptions,
    MegaDecoderShape,
    MegaDropouts,
    MegaLayerOptions,
):
    """Command-line options of ``--arch mega_lm``, named as in the published code."""

    no_affine_final_norm: bool = field(default=False, metadata={"help": "final norm without parameters"})


def complete_language_model(cfg: Union[DictConfig, Namespace]) -> DictConfig:
    """Fill and check a configuration of any origin.

    Raises:
        ValueError: where options are out of range or contradict each other.
    """
    completed = language_model.complete_language_model(MegaLanguageModelConfig, cfg)
    check_embedding_norm(completed)
    if completed.no_affine_final_norm and not completed.normalize_before:
        raise ValueError("--no-affine-final-norm: only --normalize-before models have a final norm")
    return completed
