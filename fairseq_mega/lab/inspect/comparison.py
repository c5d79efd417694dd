"""Differences between two checkpoints."""

from typing import Any, Dict, List

import torch
from torch import Tensor

from fairseq_mega.compat.checkpoints.names import difference, noun, trained_names
from fairseq_mega.convert.options import flat_options

MOST = 40  # lines about tensors


def options_that_differ(first: Dict[str, Any], second: Dict[str, Any]) -> List[str]:
    """Return the options of model and task that differ, as "name: first, second"."""
    options = flat_options(first), flat_options(second)
    names = sorted({*options[0], *options[1]})
    pairs = [(name, options[0].get(name), options[1].get(name)) for name in names]
    return [f"{name}: {one!r}, {other!r}" for name, one, other in pairs if one != other]


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


def names_that_differ(first: Dict[str, Any], second: Dict[str, Any]) -> List[str]:
    """Return the kinds of names that both have and that differ."""
    names = trained_names(first, "the first checkpoint"), trained_names(second, "the second checkpoint")
    shared = [kind for kind in names[0] if kind in names[1]]
    pairs = ((kind, difference(names[0][kind], names[1][kind], ("the first", "the second"))) for kind in shared)
    return [f"{noun(kind)}: {found}" for kind, found in pairs if found is not None]


def lines_of(first: Dict[str, Any], second: Dict[str, Any]) -> List[str]:
    """Return the comparison of two checkpoints as lines of text."""
    options = options_that_differ(first, second)
    names = names_that_differ(first, second)
    tensors = tensors_that_differ(first["model"], second["model"])
    lines = [f"options that differ: {len(options)}", *(f"  {line}" for line in options)]
    lines += [f"names that differ: {len(names)}", *(f"  {line}" for line in names)] if names else []
    lines += [f"tensors that differ: {len(tensors)} of {len({*first['model'], *second['model']})}"]
    lines += [f"  {line}" for line in tensors[:MOST]]
    return lines + ([f"  and {len(tensors) - MOST} more"] if len(tensors) > MOST else [])
