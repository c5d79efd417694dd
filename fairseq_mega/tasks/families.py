"""Kinds of models, and the tasks and commands of each kind."""

from pathlib import Path
from typing import NamedTuple, Optional, Tuple

from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.tasks.language_modeling import LanguageModelingTask
from fairseq.tasks.masked_lm import MaskedLMTask

from fairseq_mega.models.checkpoint_files import origin_of
from fairseq_mega.models.classifier import TASKS, SequenceClassifier
from fairseq_mega.models.image_classifier import ImageClassifier
from fairseq_mega.models.mega import MegaModel
from fairseq_mega.models.mega_lm import MegaLanguageModel
from fairseq_mega.models.mega_masked_lm import MegaMaskedLanguageModel

from .classification import ClassificationTask
from .image_classification import ImageClassificationTask


class Kind(NamedTuple):
    """A kind of model: its name, its task, its commands, and the base classes of its models and tasks."""

    name: str
    task: str
    commands: Tuple[str, ...]
    models: type
    tasks: type

    def fits(self, task: type) -> bool:
        """Return whether a class of tasks is for this kind of model."""
        return next(kind for kind in KINDS if issubclass(task, kind.tasks)) is self


GENERATING = ("generate", "interactive", "validate")
IMAGE_CLASSIFIER = Kind(
    "an image classifier", "image-classification", ("validate",), ImageClassifier, ImageClassificationTask
)
CLASSIFIER = Kind("a classifier", TASKS, ("validate",), SequenceClassifier, ClassificationTask)
LANGUAGE_MODEL = Kind(
    "a language model", "mega_language_modeling", ("eval-lm", *GENERATING), MegaLanguageModel, LanguageModelingTask
)
MASKED = Kind("a masked language model", "masked_lm", ("validate",), MegaMaskedLanguageModel, MaskedLMTask)
TRANSLATOR = Kind("a translator", "translation", GENERATING, MegaModel, object)
KINDS = (IMAGE_CLASSIFIER, CLASSIFIER, LANGUAGE_MODEL, MASKED, TRANSLATOR)  # the first that fits


def kind_of(arch: str) -> Optional[Kind]:
    """Return the kind of an architecture of this package, None for other architectures."""
    model = ARCH_MODEL_REGISTRY.get(arch, object)
    return next((kind for kind in KINDS if issubclass(model, kind.models)), None)


def check_model_and_data(path: Path, data: Path, *kinds: Kind) -> None:
    """Check a checkpoint and a data folder before anything is loaded.

    Raises:
        ValueError: if the checkpoint is a model of this package of another kind.
        OSError: if the folder does not exist, or the checkpoint cannot be read.
    """
    arch = origin_of(str(path)).arch
    kind = None if arch is None else kind_of(arch)
    if kind is not None and kind not in kinds:
        accepted = " or ".join(one.name for one in kinds)
        raise ValueError(f"--path {path} holds {kind.name} (--arch {arch}): give {accepted}")
    if not data.is_dir():
        raise FileNotFoundError(f"{data} is not a folder: give the data folder that the model was trained on")
