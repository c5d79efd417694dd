"""Options of the S4D classifiers."""

from dataclasses import dataclass, field
from typing import Optional

from fairseq.dataclass import ChoiceEnum

from fairseq_mega.modules.state_space import INITIALIZATIONS

from .classifier import ClassifierOptions
from .dropouts import OutputDropout
from .layers import NormOptions
from .revised import revised
from .shape import EncoderState

InitializationChoice = ChoiceEnum(list(INITIALIZATIONS))


@dataclass
@revised(
    defaults={"classifier_layers": 0, "encoder_n_dim": 64, "normalization_type": "batchnorm", "dropout": 0.0},
    help={
        "activation_fn": "without effect: S4D's is GELU",
        "encoder_n_dim": "dimensions N of the state per feature, an even number",
        "normalization_type": "norm of all layers",
        "dropout": "dropout of embeddings, and of whole features in the layers",
    },
)
class S4dClassifierConfig(ClassifierOptions, EncoderState, NormOptions, OutputDropout):
    """Command-line options of ``--arch s4d_lra``."""

    state_space_init: InitializationChoice = field(  # type: ignore[valid-type]
        default="inv", metadata={"help": "first frequencies: S4D-Lin or S4D-Inv"}
    )
    least_step: float = field(default=0.001, metadata={"help": "smallest first step of a feature"})
    largest_step: float = field(default=0.1, metadata={"help": "largest first step of a feature"})
    state_space_rate: float = field(
        default=0.1, metadata={"help": "learning rate of the modes, in parts of the other parameters'"}
    )
    state_space_step_rate: Optional[float] = field(
        default=None, metadata={"help": "learning rate of the steps, likewise (default: --state-space-rate)"}
    )
