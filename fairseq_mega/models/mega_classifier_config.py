"""Options and presets of the MEGA classifiers of the Long Range Arena and of raw speech."""

from argparse import Namespace
from dataclasses import dataclass, field
from typing import Any, Dict, Optional, Union

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


def _preset(d: int, z: int, layers: int, **options: Any) -> Dict[str, Any]:
    """Values of one architecture: widths v = f = 2d as everywhere in Table 8."""
    return {
        "encoder_embed_dim": d,
        "encoder_hidden_dim": 2 * d,
        "encoder_z_dim": z,
        "encoder_n_dim": 16,
        "encoder_layers": layers,
        "classifier_out_dim": 2 * d,
        **options,
    }


_TEXT = {"input_type": "text", "truncation_length": 1024, "dropout": 0.1}
_NUMBERS = {
    "input_type": "image",
    "attention_activation_fn": "laplace",
    "normalization_type": "batchnorm",
    "normalize_before": True,
    "dropout": 0.0,
}

_SPEECH = _preset(
    60, 30, 6, **_NUMBERS, max_positions=16000, encoder_chunk_size=1000, truncation_length=1000, sentence_class_num=10
)

# MEGA, Table 8 and the published recipes; the truncation of the EMA is a default of the published code.
CLASSIFIER_PRESETS: Dict[str, Dict[str, Any]] = {
    "mega_lra_listop": _preset(
        80, 64, 6, **_TEXT, max_positions=2002, sentence_class_num=10, normalization_type="layernorm"
    ),
    "mega_lra_imdb": _preset(128, 64, 4, **_TEXT, max_positions=4002, normalization_type="scalenorm"),
    "mega_lra_aan": _preset(128, 64, 6, **_TEXT, max_positions=4002, normalization_type="scalenorm"),
    "mega_lra_cifar10": _preset(
        160, 96, 8, **_NUMBERS, max_positions=1024, encoder_chunk_size=1024, truncation_length=1024,
        sentence_class_num=10,
    ),
    "mega_lra_pf32": _preset(
        128, 64, 6, **_NUMBERS, max_positions=1024, encoder_chunk_size=1024, truncation_length=1024
    ),
    "mega_lra_pf128": _preset(
        64, 32, 4, **{**_NUMBERS, "normalization_type": "syncbatchnorm"}, max_positions=16384,
        encoder_chunk_size=16384, truncation_length=4096,
    ),
    **dict.fromkeys(("mega_sc_raw_base", "mega_sc_raw", "sc_raw"), _SPEECH),  # three published names of one model
    "mega_sc_raw_big": _preset(
        72, 36, 6, **_NUMBERS, max_positions=16000, encoder_chunk_size=1000, truncation_length=1000,
        sentence_class_num=10,
    ),
}  # fmt: skip


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
