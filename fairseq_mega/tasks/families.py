"""Kinds of models, with the tasks and the commands that are for them."""

from typing import Callable, NamedTuple, Optional, Sequence

from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.tasks.language_modeling import LanguageModelingTask
from fairseq.tasks.masked_lm import MaskedLMTask

from fairseq_mega.models.classifier import SequenceClassifier
from fairseq_mega.models.image_classifier import ImageClassifier
from fairseq_mega.models.mega import MegaModel
from fairseq_mega.models.mega_lm import MegaLanguageModel
from fairseq_mega.models.mega_masked_lm import MegaMaskedLanguageModel
from fairseq_mega.models.options.classifier import TASKS

from .classification import ClassificationTask
from .image_classification import ImageClassificationTask


class Kind(NamedTuple):
    """A kind of model: its name, its task, whether a class of tasks is for it, and the commands that take it."""

    name: str
    task: str
    fits: Callable[[type], bool]
    commands: Sequence[str]


def kind_of(arch: str) -> Optional[Kind]:
    """The kind of an architecture of this package, None for others."""
    model = ARCH_MODEL_REGISTRY.get(arch, object)
    if issubclass(model, SequenceClassifier):
        return Kind("a classifier", TASKS, _of_sequences, ["validate"])
    if issubclass(model, ImageClassifier):
        images = "image-classification"
        return Kind("an image classifier", images, lambda t: issubclass(t, ImageClassificationTask), ["validate"])
    if issubclass(model, MegaLanguageModel):
        commands = ["eval-lm", "generate", "interactive", "validate"]
        return Kind(
            "a language model", "mega_language_modeling", lambda t: issubclass(t, LanguageModelingTask), commands
        )
    if issubclass(model, MegaMaskedLanguageModel):
        return Kind("a masked language model", "masked_lm", lambda task: issubclass(task, MaskedLMTask), ["validate"])
    if issubclass(model, MegaModel):
        others = (ClassificationTask, LanguageModelingTask, MaskedLMTask)
        commands = ["generate", "interactive", "validate"]
        return Kind("a translator", "translation", lambda task: not issubclass(task, others), commands)
    return None


def _of_sequences(task: type) -> bool:
    return issubclass(task, ClassificationTask) and not issubclass(task, ImageClassificationTask)
