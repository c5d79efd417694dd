"""Build the model of a converted checkpoint, and check that it has all tensors, with the right shapes."""

from argparse import Namespace
from types import SimpleNamespace
from typing import Dict

import torch
from torch import Tensor, nn

from fairseq_mega.models.checkpoints import FINGERPRINTS, OPTIONAL
from fairseq_mega.models.mega import MegaModel
from fairseq_mega.models.mega_classifier import MegaClassifier
from fairseq_mega.models.mega_image import MegaImageModel
from fairseq_mega.models.mega_lm import MegaLanguageModel
from fairseq_mega.models.mega_masked_lm import MegaMaskedLanguageModel
from fairseq_mega.models.megalodon_lm import MegalodonLanguageModel
from fairseq_mega.models.on_paper import stand_in

from .options import IMAGES, MASKED, kind_of


def build_model(options: Namespace, model: Dict[str, Tensor]) -> nn.Module:
    """Build the model of our options with random weights, for dictionaries as long as the tables of its tensors.

    Raises:
        ValueError: if an option is out of range or missing.
    """
    kind = kind_of(model)
    if kind == "translator":
        source, target = (stand_in(table_length(model, side)) for side in ("encoder", "decoder"))
        return MegaModel.build_model(options, SimpleNamespace(source_dictionary=source, target_dictionary=target))
    if kind == "language model":
        dictionary = stand_in(table_length(model, "decoder"))
        task = SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary, dictionary=dictionary)
        megalodon = getattr(options, "arch", None) == "megalodon_lm"
        return (MegalodonLanguageModel if megalodon else MegaLanguageModel).build_model(options, task)
    if kind == MASKED:
        dictionary = stand_in(table_length(model, "encoder"))
        return MegaMaskedLanguageModel.build_model(options, SimpleNamespace(source_dictionary=dictionary))
    if kind == IMAGES:
        return MegaImageModel.build_model(options)
    table = model["encoder.embedding.tokens.weight"]
    text = table.dim() == 2
    first = model.get("head.hidden.0.weight", model["head.output.weight"])
    task = SimpleNamespace(
        input_type="text" if text else "image",
        documents=first.size(1) // table.size(-1) if text else 1,
        dictionary=stand_in(table.size(0)) if text else None,
        label_dictionary=stand_in(4) if text else None,
    )
    return MegaClassifier.build_model(options, task)


def table_length(model: Dict[str, Tensor], side: str) -> int:
    """Return the rows of the embedding table, of an adaptive table in all bands; raises ValueError if it is missing."""
    prefix = f"{side}.embedding.tokens."
    bands = [name for name in model if name.startswith(f"{prefix}embeddings.") and name.endswith(".0.weight")]
    names = [f"{prefix}weight"] if f"{prefix}weight" in model else bands
    if not names:
        raise ValueError(f"the {side} has no embedding table: give the whole checkpoint")
    return sum(model[name].size(0) for name in names)


def check_complete(options: Namespace, model: Dict[str, Tensor], where: str) -> None:
    """Raise a ValueError with PyTorch's list of the tensors that do not fit the model of our options."""
    with torch.device("meta"):
        built = build_model(options, model)
    optional = {name: tensor for name, tensor in built.state_dict().items() if name.endswith(OPTIONAL)}
    given = {name: tensor for name, tensor in model.items() if not name.endswith(FINGERPRINTS)}
    try:
        nn.Module.load_state_dict(built, {**optional, **given}, assign=True)
    except RuntimeError as error:
        raise ValueError(f"{where}: {error}") from error
