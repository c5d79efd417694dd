"""Options of the MEGA classifiers of the Long Range Arena and of raw speech."""

from argparse import Namespace
from dataclasses import dataclass, field
from typing import Optional, Union

from omegaconf import DictConfig

from .classifier import ClassifierOptions
from .completion import complete
from .dropouts import MegaDropouts
from .layers import MegaLayerOptions, check_embedding_norm
from .revised import revised
from .shape import MegaEncoderShape


@dataclass
@revised(
    defaults={"encoder_hidden_dim": 256, "encoder_z_dim": 64},
    aliases={
        "encoder_z_dim": "--z-dim",
        "encoder_n_dim": "--n-dim",
        "encoder_chunk_size": "--chunk-size",
        "normalization_type": "--norm-type",
    },
    help={"no_scale_embedding": "without effect: classifiers never scale their embeddings"},
)
class MegaClassifierConfig(ClassifierOptions, MegaEncoderShape, MegaDropouts, MegaLayerOptions):
    """Command-line options of ``--arch mega_lra``; the published names of its options are understood too."""

    act_dropout: Optional[float] = field(
        default=None, metadata={"help": "--hidden-dropout and --activation-dropout in one, as published"}
    )


def complete_classifier(cfg: Union[DictConfig, Namespace]) -> DictConfig:
    """Fill and check a configuration of any origin; see :func:`fairseq_mega.models.options.completion.complete`.

    Raises:
        ValueError: where options contradict each other.
    """
    completed = complete(MegaClassifierConfig, cfg)
    check_embedding_norm(completed)
    if completed.act_dropout is not None:
        completed.hidden_dropout = completed.activation_dropout = completed.act_dropout
    return completed
