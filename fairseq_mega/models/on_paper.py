"""Models on the meta device: tensors have shapes but no values, and dictionaries are stand-ins."""

from argparse import Namespace
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, Dict, Mapping, Tuple

import torch
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY
from torch import nn

from fairseq_mega.modules.images import PatchEmbedding
from fairseq_mega.modules.norm import build_norm
from fairseq_mega.modules.transformer_layer import TransformerLayer, TransformerLayerConfig

from .options.configurations import complete
from .vit_image import VitImageModel


def stand_in(vocab_size: int) -> Dictionary:
    """Return a dictionary of ``vocab_size`` entries; raises ValueError for fewer than fairseq's four special tokens."""
    dictionary = Dictionary()
    if vocab_size < len(dictionary):
        raise ValueError(f"a table of {vocab_size} rows: fairseq's dictionaries begin with {len(dictionary)} tokens")
    for number in range(vocab_size - len(dictionary)):
        dictionary.add_symbol(f"symbol{number}")
    return dictionary


_kept_stand_in = lru_cache(maxsize=4)(stand_in)  # building a large dictionary takes a second
_BUILT: Dict[Tuple[str, int, int], nn.Module] = {}  # cache: a large model takes a second, and tables repeat it


def built(options: Mapping[str, Any], vocab_size: int, documents: int = 1) -> nn.Module:
    """Return the model of :func:`build`, the same one for equal arguments: it must not be changed."""
    key = (repr(sorted(options.items())), vocab_size, documents)
    if key not in _BUILT:
        _BUILT[key] = build(options, vocab_size, documents)
    return _BUILT[key]


def build(options: Mapping[str, Any], vocab_size: int, documents: int = 1) -> nn.Module:
    """Build a model on the meta device.

    Args:
        options: options of the model as in a recipe; ``_name`` is a model or an architecture, which sets the others.
        vocab_size: V, size of each of its dictionaries.
        documents: documents in an example of a classifier.

    Raises:
        ValueError: if options are out of range or contradict each other or the dictionary.
    """
    name, given = options["_name"], Namespace(**options)
    ARCH_CONFIG_REGISTRY[name](given)
    model, dictionary = ARCH_MODEL_REGISTRY[name], _kept_stand_in(vocab_size)
    task = SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary, dictionary=dictionary)
    task.documents, task.input_type = documents, getattr(given, "input_type", "text")
    kind = MODEL_DATACLASS_REGISTRY.get(name)
    if kind is not None and model.__module__.startswith("fairseq."):  # our models complete their options
        given = complete(kind, given)
    with torch.device("meta"):
        return _vision_transformer(given) if model is VitImageModel else model.build_model(given, task)


def _vision_transformer(options: Namespace) -> nn.Module:
    """Build the parts of :class:`fairseq_mega.models.vit_image.VitImageModel` without timm, which is optional."""
    d = options.encoder_embed_dim
    config = TransformerLayerConfig(d, options.encoder_attention_heads, options.encoder_ffn_embed_dim)
    layers = [TransformerLayer(config) for _ in range(options.encoder_layers)]
    patches = PatchEmbedding(d, options.image_size, options.patch_size)
    class_token = nn.ParameterDict({name: nn.Parameter(torch.empty(d)) for name in ("token", "position")})
    head = nn.ModuleDict({"norm": build_norm("layernorm", d), "head": nn.Linear(d, options.image_class_num)})
    return nn.ModuleList([patches, class_token, *layers, head])
