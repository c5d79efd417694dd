"""Kinds of models, and the tasks and commands of each kind."""

from pathlib import Path
from typing import Callable, NamedTuple, Optional, Sequence

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
    """A kind of model: its name, its task, a function that accepts a class of tasks, and its commands."""

    name: str
    task: str
    fits: Callable[[type], bool]
    commands: Sequence[str]


def _of_sequences(task: type) -> bool:
    return issubclass(task, ClassificationTask) and not issubclass(task, ImageClassificationTask)


def _of_images(task: type) -> bool:
    return issubclass(task, ImageClassificationTask)


def _of_language_models(task: type) -> bool:
    return issubclass(task, LanguageModelingTask)


def _of_masked_language_models(task: type) -> bool:
    return issubclass(task, MaskedLMTask)


def _of_translators(task: type) -> bool:
    return not issubclass(task, (ClassificationTask, LanguageModelingTask, MaskedLMTask))


GENERATING = ("generate", "interactive", "validate")
CLASSIFIER = Kind("a classifier", TASKS, _of_sequences, ["validate"])
IMAGE_CLASSIFIER = Kind("an image classifier", "image-classification", _of_images, ["validate"])
LANGUAGE_MODEL = Kind("a language model", "mega_language_modeling", _of_language_models, ["eval-lm", *GENERATING])
MASKED_LANGUAGE_MODEL = Kind("a masked language model", "masked_lm", _of_masked_language_models, ["validate"])
TRANSLATOR = Kind("a translator", "translation", _of_translators, GENERATING)
KINDS = {
    SequenceClassifier: CLASSIFIER,
    ImageClassifier: IMAGE_CLASSIFIER,
    MegaLanguageModel: LANGUAGE_MODEL,
    MegaMaskedLanguageModel: MASKED_LANGUAGE_MODEL,
    MegaModel: TRANSLATOR,
}


def kind_of(arch: str) -> Optional[Kind]:
    """Return the kind of an architecture of this package, None for other architectures."""
    model = ARCH_MODEL_REGISTRY.get(arch, object)
    return next((kind for family, kind in KINDS.items() if issubclass(model, family)), None)


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
