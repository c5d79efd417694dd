"""Convert a model's tensors between the published layout (facebookresearch/mega) and ours, bit for bit."""

import re
from typing import Dict, List

import torch
from torch import Tensor

from .names import Pairs, tables, tables_of_images, tables_of_published, tables_of_transformers, to_ours, to_published
from .options import IMAGES, MASKED, kind_of

# Buffers of the published code that hold no parameter, and their value.
VERSION = re.compile(r"(encoder|decoder)\.version$")
PUBLISHED_VERSION = 3.0
ROTARY_BUFFER = re.compile(r"(?<=rel_pos_bias)\._float_tensor$")
# Our buffers that identify dictionaries and data of a training; published models lack them.
OUR_BUFFERS = re.compile(r"(^|\.)(dictionary_fingerprints?|sample_scale)$")
EXPANDED = re.compile(r"\.ema\.(alpha|delta|beta)$")  # ours (K, N), published (K, N, 1)
PLACES = "encoder.embedding.positions"  # of images: ours (L, d), published (1, L, d)
OUTPUT, TABLE = "decoder.output_projection.weight", "decoder.embed_tokens.weight"


def is_ignored(name: str) -> bool:
    """Return whether a published tensor is a buffer without information."""
    return VERSION.match(name) is not None or ROTARY_BUFFER.search(name) is not None


def convert_name(name: str) -> str:
    """Return our name of a published tensor."""
    return to_ours(name, tables_of_published([name]))


def convert_state_dict(state_dict: Dict[str, Tensor], shared_output: bool) -> Dict[str, Tensor]:
    """Rename the tensors of a published model.

    Args:
        state_dict: published names to tensors; not changed.
        shared_output: the output layer shares the decoder's embeddings; its copy is omitted.

    Returns:
        Our names to tensors; EMA parameters (K, N, 1) become (K, N), positions of images (1, L, d) become (L, d).

    Raises:
        ValueError: if the copy of the shared output layer differs from the embeddings.
    """
    named, converted = tables_of_published(state_dict), {}
    both = shared_output and OUTPUT in state_dict and TABLE in state_dict
    if both and not torch.equal(state_dict[OUTPUT], state_dict[TABLE]):
        raise ValueError(f"{OUTPUT} differs from {TABLE}, although the options share them: the file is damaged")
    for name, tensor in state_dict.items():
        if is_ignored(name) or (shared_output and name == OUTPUT):
            continue
        ours = to_ours(name, named)
        converted[ours] = tensor.squeeze(-1) if EXPANDED.search(ours) and tensor.dim() == 3 else tensor
        if ours == PLACES and tensor.dim() == 3:
            converted[ours] = tensor.squeeze(0)
    return converted


def tables_of_ours(state_dict: Dict[str, Tensor]) -> List[Pairs]:
    """Return the tables for the names of a model of ours."""
    kind = kind_of(state_dict)
    if kind == MASKED:
        return tables_of_transformers()
    if kind == IMAGES:
        return tables_of_images()
    classifier = kind == "classifier"
    table = state_dict.get("encoder.embedding.tokens.weight")
    return tables(classifier, classifier and table is not None and table.dim() == 2)


def publish_state_dict(state_dict: Dict[str, Tensor], shared_output: bool) -> Dict[str, Tensor]:
    """Rename our tensors to published names, buffers included: the inverse of :func:`convert_state_dict`."""
    named, published = tables_of_ours(state_dict), {}
    for name, tensor in state_dict.items():
        if OUR_BUFFERS.search(name) or VERSION.match(name):
            continue
        if EXPANDED.search(name):
            tensor = tensor.unsqueeze(-1)
        if name == PLACES:
            tensor = tensor.unsqueeze(0)
        published[to_published(name, named)] = tensor
        if name.endswith(".relative_bias.alpha"):
            published[to_published(name[: -len("alpha")], named) + "_float_tensor"] = torch.zeros(1)
    if shared_output and TABLE in published:
        published[OUTPUT] = published[TABLE]
    if kind_of(state_dict) in ("translator", "language model"):
        for side in sorted({name.split(".")[0] for name in state_dict}):
            published[f"{side}.version"] = torch.tensor([PUBLISHED_VERSION])
    return published
