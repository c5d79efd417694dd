"""Options of the MEGA classifiers of the Long Range Arena and of raw speech."""

from argparse import Namespace
from dataclasses import dataclass, field
from typing import Optional, Union

from omegaconf import DictConfig

from .classifier import ClassifierOptions
from .mega_config import LayerOptions, NormChoice, check_embedding_norm, complete


@dataclass
class MegaClassifierConfig(ClassifierOptions, LayerOptions):
    """Command-line options of ``--arch mega_lra``; the published names of its options are understood too."""

    encoder_embed_dim: int = field(default=128, metadata={"help": "width d"})
    encoder_hidden_dim: int = field(default=256, metadata={"help": "width v of the attention's values"})
    encoder_ffn_embed_dim: Optional[int] = field(
        default=None, metadata={"help": "inner width of the FFN, 0 for none (default: --encoder-hidden-dim)"}
    )
    encoder_z_dim: int = field(
        default=64, metadata={"help": "width z of the shared query/key representation", "argparse_alias": "--z-dim"}
    )
    encoder_n_dim: int = field(
        default=16, metadata={"help": "EMA dimensions N per feature, 0 for no EMA", "argparse_alias": "--n-dim"}
    )
    encoder_layers: int = field(default=4, metadata={"help": "number of layers"})
    encoder_chunk_size: int = field(
        default=-1, metadata={"help": "attention chunk C, -1 for full attention", "argparse_alias": "--chunk-size"}
    )
    normalization_type: NormChoice = field(
        default="layernorm", metadata={"help": "norm of all sub-layers", "argparse_alias": "--norm-type"}
    )
    normalize_before: bool = field(
        default=False,
        metadata={
            "help": "norm before each sub-layer instead of after it",
            "argparse_alias": "--encoder-normalize-before",
        },
    )
    no_scale_embedding: bool = field(
        default=False, metadata={"help": "without effect: classifiers never scale their embeddings"}
    )
    act_dropout: Optional[float] = field(
        default=None, metadata={"help": "--hidden-dropout and --activation-dropout in one, as published"}
    )


def complete_classifier(cfg: Union[DictConfig, Namespace]) -> DictConfig:
    """Fill and check a configuration of any origin; see :func:`fairseq_mega.models.mega_config.complete`.

    Raises:
        ValueError: where options contradict each other.
    """
    completed = complete(MegaClassifierConfig, cfg)
    check_embedding_norm(completed)
    if completed.act_dropout is not None:
        completed.hidden_dropout = completed.activation_dropout = completed.act_dropout
    return completed
