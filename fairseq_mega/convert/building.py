"""Build the model of a converted checkpoint, and check that it has all tensors, with the right shapes."""

from argparse import Namespace
from types import SimpleNamespace
from typing import Any, Dict, List

import torch
from torch import Tensor, nn

from fairseq_mega.models.mega import MegaModel
from fairseq_mega.models.mega_classifier import MegaClassifier
from fairseq_mega.models.mega_image import MegaImageModel
from fairseq_mega.models.mega_lm import MegaLanguageModel
from fairseq_mega.models.mega_masked_lm import MegaMaskedLanguageModel
from fairseq_mega.models.megalodon_lm import MegalodonLanguageModel
from fairseq_mega.models.on_paper import stand_in

from .megalodon_names import published_name
from .names import to_published
from .options import IMAGES, MASKED, kind_of
from .tensors import OUR_BUFFERS, tables_of_ours

MEGALODON = "megalodon_lm"


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
        language_model = MegalodonLanguageModel if getattr(options, "arch", None) == MEGALODON else MegaLanguageModel
        return language_model.build_model(options, task)
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


def differences(options: Namespace, model: Dict[str, Tensor], our_names: bool = False) -> List[str]:
    """List the tensors of a model that are missing, left over or of a wrong shape, by published names or by ours."""
    with torch.device("meta"):
        needed = build_model(options, model).state_dict()
    tables, of_megalodon = tables_of_ours(model), getattr(options, "arch", None) == MEGALODON
    found = []
    for name in sorted({*needed, *model}):
        shown = name
        if not our_names:
            shown = published_name(name) if of_megalodon else to_published(name, tables)
        if name not in model:
            if not OUR_BUFFERS.search(name) and not name.endswith(("._float_tensor", ".version")):
                found.append(f"missing: {shown} {tuple(needed[name].shape)}")
        elif name not in needed:
            found.append(f"left over: {shown} {tuple(model[name].shape)}")
        elif model[name].shape != needed[name].shape:
            found.append(
                f"wrong shape: {shown} is {tuple(model[name].shape)}, the options require {tuple(needed[name].shape)}"
            )
    return found


def check_complete(options: Namespace, model: Dict[str, Tensor], where: str, our_names: bool = False) -> None:
    """Raise a ValueError with the list of :func:`differences`, if there are any."""
    found: List[str] = differences(options, model, our_names)
    if found:
        listed: Any = "\n  ".join(found)
        raise ValueError(f"{where}: {len(found)} tensors do not fit the options in the checkpoint\n  {listed}")
