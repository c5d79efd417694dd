"""Options of every classifier of sequences."""

from dataclasses import dataclass, field
from typing import Any, Optional

from fairseq.dataclass import ChoiceEnum
from omegaconf import DictConfig

from fairseq_mega.modules.classifier_head import POOLINGS

from .completion import check_at_least
from .layers import ActivationChoice, LayerOptions
from .revised import revised
from .shape import EncoderSize, LongestInput

INPUT_TYPES = ("text", "image")
InputChoice = ChoiceEnum(list(INPUT_TYPES))
PoolingChoice = ChoiceEnum(list(POOLINGS))
TASKS = "lra-text, lra-image or speech_commands"
BOUNDS = {
    "encoder_layers": 1,
    "max_positions": 1,
    "sentence_class_num": 2,
    "classifier_layers": 0,
    "classifier_out_dim": 1,
}


@dataclass
@revised(
    defaults={"encoder_embed_dim": 128, "encoder_layers": 4},
    aliases={"normalize_before": "--encoder-normalize-before"},
    help={"max_positions": "longest input: longer text is cut there, a longer image is refused"},
)
class ClassifierOptions(EncoderSize, LayerOptions, LongestInput):
    """Command-line options of every classifier, named as in the published code."""

    input_type: Optional[InputChoice] = field(  # type: ignore[valid-type]
        default=None, metadata={"help": "tokens (text) or real numbers (image; speech too); default: the task's"}
    )
    sen_rep_type: PoolingChoice = field(  # type: ignore[valid-type]
        default="mp",
        metadata={"help": "sentence vector: mean over the positions (mp), or a <CLS> token in front (cls)"},
    )
    sentence_class_num: int = field(default=2, metadata={"help": "number of classes"})
    classifier_layers: int = field(default=1, metadata={"help": "hidden layers of the head"})
    classifier_out_dim: int = field(default=256, metadata={"help": "width of the head's hidden layers"})
    classifier_activation_fn: ActivationChoice = field(
        default="gelu", metadata={"help": "activation of the head's hidden layers"}
    )


def check_classifier(cfg: DictConfig, task: Any) -> None:
    """Raise a ValueError where the options of a classifier are out of range or do not suit the task."""
    check_at_least(cfg, BOUNDS)
    expected = getattr(task, "input_type", None)
    if expected is None:
        raise ValueError(f"a classifier needs a task that classifies: give --task {TASKS}")
    if cfg.input_type is not None and str(cfg.input_type) != expected:
        raise ValueError(
            f"--input-type {cfg.input_type}: the data of this task are --input-type {expected}; leave the option out, "
            f"or give another --arch or --task"
        )
    if expected == "image" and str(cfg.sen_rep_type) == "cls":
        raise ValueError("--sen-rep-type cls: real numbers have no <CLS> symbol, give --sen-rep-type mp")
