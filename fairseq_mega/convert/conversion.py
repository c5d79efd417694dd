"""Conversion of one checkpoint as ``fairseq-mega-convert`` requests it.

A conversion changes names, axes of length one and the order of rows, but no value: with ``--verify``, converting back
must restore every tensor bit for bit. The package's tests compare the outputs of both codes' formulas.
"""

import argparse
import sys
from typing import Any, Dict, List

import torch
from torch import Tensor

from fairseq_mega.compat.files.settings import other_settings

from . import layouts
from .building import check_complete
from .megalodon import TABLES
from .megalodon_names import FREQUENCIES, PRIORS
from .options import flat_options
from .tensors import OUR_BUFFERS, is_ignored

PAD = 1  # in every dictionary of fairseq
PADDED = (
    "This translator was trained without --published-source-padding: in a batch of unequal lengths the published code "
    "counts padding into the positions of its sources, and translates worse; translate one sentence at a time there."
)
WINDOW = (
    "This model computes the norms' statistics over the whole text, the published code at test time over the last 6 to "
    "8 chunks, as --statistics-window 6 does here."
)


def convert(arguments: argparse.Namespace) -> Dict[str, Any]:
    """Return the checkpoint to write; raises OSError and ValueError."""
    path = str(arguments.input)
    where = f"--input {path}"
    given = layouts.read(arguments.input)
    official = arguments.to == "official"
    if official:
        if arguments.input.is_dir():
            raise ValueError(f"{where}: --to official requires a checkpoint of this package; this is a published one")
        converted = layouts.to_official(given, path)
        if flat_options(converted).get("published_source_padding") is False:
            print(PADDED, file=sys.stderr)
        if "consolidation" in converted and not flat_options(given).get("statistics_window"):
            print(WINDOW, file=sys.stderr)
    elif layouts.is_this_packages(given):
        return given
    else:
        converted = layouts.to_ours(given, path)
        advice = layouts.advice(given)
        if advice:
            print(advice, file=sys.stderr)
    ours = layouts.to_ours(converted, path) if official else converted
    lost = other_settings(given, ours) if official else []
    if lost:
        raise ValueError(f"{where}: --to official loses {', '.join(lost)}; nothing was written")
    check_complete(ours["args"], ours["model"], where)
    if arguments.verify:
        changed = changed_tensors(given, ours if official else layouts.to_official(converted, path))
        if changed:
            raise ValueError(f"{where}: --verify: converting back would change {', '.join(changed)}")
        print(f"way back: the {len(weights_of(given))} weights of the input are equal, bit for bit", flush=True)
    return converted


def changed_tensors(given: Dict[str, Any], back: Dict[str, Any]) -> List[str]:
    """Return the names of tensors that converting back changed, lost or added.

    Buffers without information and copies of shared tables may be missing on either side.
    """
    before, after = weights_of(given), weights_of(back)
    copies = [id(tensor) for tensor in after.values()]
    made = [name for name, tensor in after.items() if name not in before and copies.count(id(tensor)) == 1]
    lost = [name for name, tensor in before.items() if name not in after or not _same(tensor, after[name])]
    return sorted([*lost, *made])


def _same(tensor: Tensor, other: Tensor) -> bool:
    return tensor.dtype == other.dtype and torch.equal(tensor, other)


def weights_of(checkpoint: Dict[str, Any]) -> Dict[str, Tensor]:
    """Return the tensors without buffers, and without the rows of padding if padding has no probability."""
    model = {
        name: tensor
        for name, tensor in checkpoint["model"].items()
        if not (is_ignored(name) or OUR_BUFFERS.search(name) or name.endswith((*PRIORS, FREQUENCIES)))
    }
    if flat_options(checkpoint).get("no_padding_logit"):
        model.update({name: torch.cat([model[name][:PAD], model[name][PAD + 1 :]]) for name in TABLES if name in model})
    return model
