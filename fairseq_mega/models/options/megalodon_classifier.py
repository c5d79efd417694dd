"""Options of the MEGALODON classifiers of the Long Range Arena and of raw speech."""

from argparse import Namespace
from dataclasses import dataclass, field
from typing import Union

from omegaconf import DictConfig

from .classifier import ClassifierOptions
from .completion import complete
from .dropouts import MegalodonDropouts
from .layers import EmaNormChoice, MegalodonLayerOptions
from .revised import revised
from .shape import MegalodonEncoderShape


@dataclass
@revised(
    defaults={"encoder_hidden_dim": 256, "encoder_z_dim": 64, "classifier_layers": 0},
    aliases={"encoder_z_dim": "--z-dim", "encoder_n_dim": "--n-dim", "encoder_chunk_size": "--chunk-size"},
    help={
        "activation_fn": "without effect: MEGALODON's is SiLU",
        "normalize_before": "without effect: MEGALODON's norms stand before",
    },
)
class MegalodonClassifierConfig(ClassifierOptions, MegalodonEncoderShape, MegalodonDropouts, MegalodonLayerOptions):
    """Command-line options of ``--arch megalodon_lra``."""

    ema_norm: EmaNormChoice = field(
        default="rmsnorm", metadata={"help": "what follows the EMA: an RMS norm, or SiLU as in MEGA"}
    )


def complete_megalodon_classifier(cfg: Union[DictConfig, Namespace]) -> DictConfig:
    """Fill a configuration of any origin; see :func:`fairseq_mega.models.options.completion.complete`."""
    return complete(MegalodonClassifierConfig, cfg)
