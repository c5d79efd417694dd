"""Kinds of models, for the commands that accept some of them."""

from pathlib import Path
from typing import NamedTuple, Optional

from fairseq.models import ARCH_MODEL_REGISTRY

from fairseq_mega.models.checkpoint_files import origin_of
from fairseq_mega.models.classifier import SequenceClassifier
from fairseq_mega.models.image_classifier import ImageClassifier
from fairseq_mega.models.mega import MegaModel
from fairseq_mega.models.mega_lm import MegaLanguageModel
from fairseq_mega.models.mega_masked_lm import MegaMaskedLanguageModel


class Kind(NamedTuple):
    """A kind of model: its name, and the base class of its models."""

    name: str
    models: type


IMAGE_CLASSIFIER = Kind("an image classifier", ImageClassifier)
CLASSIFIER = Kind("a classifier", SequenceClassifier)
LANGUAGE_MODEL = Kind("a language model", MegaLanguageModel)
MASKED = Kind("a masked language model", MegaMaskedLanguageModel)
TRANSLATOR = Kind("a translator", MegaModel)
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
