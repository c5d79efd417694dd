"""Options and checks of the MEGALODON language model."""

from argparse import Namespace
from dataclasses import dataclass, field
from typing import Union

from omegaconf import DictConfig

from .completion import check_at_least
from .dropouts import MegalodonDropouts
from .language_model import DocumentOptions, LanguageModelOptions, complete_language_model
from .layers import MegalodonLayerOptions
from .shape import MegalodonDecoderShape


@dataclass
class MegalodonLanguageModelConfig(
    LanguageModelOptions, DocumentOptions, MegalodonDecoderShape, MegalodonDropouts, MegalodonLayerOptions
):
    """Command-line options of ``--arch megalodon_lm``."""

    scale_embedding: bool = field(default=False, metadata={"help": "scale embeddings by sqrt(d)"})
    statistics_window: int = field(
        default=0,
        metadata={
            "help": "chunks over which streams of an evaluation take the norms' statistics anew: 6 as in the "
            "published code; 0 for all of the text, as in the paper"
        },
    )
    no_padding_logit: bool = field(
        default=False,
        metadata={
            "help": "give padding no probability, for models whose vocabulary had no padding, as the converted "
            "ones of XuezheMax/megalodon"
        },
    )


def complete_megalodon(cfg: Union[DictConfig, Namespace]) -> DictConfig:
    """Fill and check a configuration of any origin.

    Raises:
        ValueError: where options are out of range or contradict each other.
    """
    completed = complete_language_model(MegalodonLanguageModelConfig, cfg)
    check_at_least(completed, {"statistics_window": 0})
    if completed.statistics_window > 0 and completed.decoder_chunk_size < 1:
        raise ValueError(
            f"--statistics-window {completed.statistics_window} counts chunks: give --decoder-chunk-size, or leave it "
            f"out"
        )
    if completed.no_padding_logit and completed.adaptive_softmax_cutoff is not None:
        raise ValueError(
            f"--no-padding-logit: the model needs a plain output, not --adaptive-softmax-cutoff "
            f"{completed.adaptive_softmax_cutoff}; leave out either of the two"
        )
    return completed
