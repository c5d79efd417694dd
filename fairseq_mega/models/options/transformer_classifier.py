"""Options of the Transformer classifiers."""

from dataclasses import dataclass, field

from .classifier import ClassifierOptions
from .dropouts import Dropouts
from .revised import revised
from .shape import TransformerEncoderShape


@dataclass
@revised(
    defaults={"activation_fn": "gelu"},
    aliases={"activation_dropout": "--act-dropout"},
    help={"activation_fn": "activation of the FFN"},
)
class TransformerClassifierConfig(ClassifierOptions, TransformerEncoderShape, Dropouts):
    """Command-line options of ``--arch transformer_lra``."""

    encoder_sinusoidal_pos: bool = field(
        default=False, metadata={"help": "sinusoidal positions instead of a learned vector for each"}
    )
    share_encoder_layers: bool = field(default=False, metadata={"help": "one set of weights for all layers"})
