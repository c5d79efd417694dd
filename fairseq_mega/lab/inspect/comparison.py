"""Differences between two checkpoints."""

from argparse import Namespace
from dataclasses import MISSING, fields
from typing import Any, Dict, List

import torch
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_NAME_REGISTRY, MODEL_DATACLASS_REGISTRY
from torch import Tensor

from fairseq_mega.compat.checkpoints.card import card_of, differences
from fairseq_mega.convert.options import flat_options, shared_with_encoder, widths

MOST = 40  # lines about tensors


def options_that_differ(first: Dict[str, Any], second: Dict[str, Any]) -> List[str]:
    """Return the options of model and task with two values, as "name: first, second"; see :func:`resolved`."""
    given = flat_options(first), flat_options(second)
    names = sorted({*given[0], *given[1]} - {"criterion"})  # which no model reads
    options = [resolved(values, checkpoint["model"]) for values, checkpoint in zip(given, (first, second))]
    pairs = [(name, options[0].get(name), options[1].get(name)) for name in names]
    return [f"{name}: {one!r}, {other!r}" for name, one, other in pairs if one != other]


def resolved(options: Dict[str, Any], tensors: Dict[str, Tensor]) -> Dict[str, Any]:
    """Return options with the values that a model has: of its preset, its defaults, its tensors and the encoder.

    ``arch`` becomes the name of the model, of which a preset is a set of values. Options of an architecture that is not
    known here stay as they are.
    """
    arch = str(options.get("arch"))
    model = ARCH_MODEL_NAME_REGISTRY.get(arch)
    if model is None:
        return options
    given = Namespace(**{name: value for name, value in options.items() if value is not None})
    ARCH_CONFIG_REGISTRY[arch](given)
    found = {**vars(given), "arch": model}
    kind = MODEL_DATACLASS_REGISTRY.get(model)
    for field in () if kind is None else fields(kind):
        if field.default is not MISSING and not str(field.default).startswith("${") and found.get(field.name) is None:
            found[field.name] = field.default
    for side in ("encoder", "decoder"):
        found.update({name: value for name, value in widths(tensors, side).items() if found.get(name) is None})
    return shared_with_encoder(found)


def tensors_that_differ(first: Dict[str, Tensor], second: Dict[str, Tensor]) -> List[str]:
    """Return missing names, and shapes and values that differ, the largest relative difference first."""
    found = [f"{name}: in the first alone" for name in first if name not in second]
    found += [f"{name}: in the second alone" for name in second if name not in first]
    changed = []
    for name in first.keys() & second.keys():
        one, other = first[name], second[name]
        if one.shape != other.shape:
            found.append(f"{name}: {tuple(one.shape)}, {tuple(other.shape)}")
        elif not torch.equal(one, other):
            one, other = one.double(), other.double()
            size = one.norm().clamp(min=torch.finfo(one.dtype).tiny)
            changed.append((float((one - other).norm() / size), float((one - other).abs().max()), name))
    for relative, largest, name in sorted(changed, reverse=True):
        found.append(f"{name}: differs by {relative:.2%} of its norm, at most {largest:.3g}")
    return found


def lines_of(first: Dict[str, Any], second: Dict[str, Any]) -> List[str]:
    """Return the comparison of two checkpoints as lines of text."""
    options = options_that_differ(first, second)
    cards = card_of(first, "the first checkpoint"), card_of(second, "the second checkpoint")
    names = differences(*cards, ("the first", "the second"))
    tensors = tensors_that_differ(first["model"], second["model"])
    lines = [f"options that differ: {len(options)}", *(f"  {line}" for line in options)]
    lines += [f"entries of the data card that differ: {len(names)}", *(f"  {line}" for line in names)] if names else []
    lines += [f"tensors that differ: {len(tensors)} of {len({*first['model'], *second['model']})}"]
    lines += [f"  {line}" for line in tensors[:MOST]]
    return lines + ([f"  and {len(tensors) - MOST} more"] if len(tensors) > MOST else [])
