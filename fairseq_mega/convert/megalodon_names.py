"""Names of XuezheMax/megalodon's tensors and ours, matrices that are joined here, and how ranks split each tensor."""

from typing import Dict, List, Optional, Tuple

import torch
from torch import Tensor

# Published name within a layer -> ours, and the axis that tensor-parallel ranks split; None: each rank has the whole.
LAYER: Tuple[Tuple[str, str, Optional[int]], ...] = (
    ("mega.timenorm.weight", "attention.norm.weight", 0),
    ("mega.timenorm.bias", "attention.norm.bias", 0),
    ("mega.cema.alpha", "attention.ema.alpha", 0),
    ("mega.cema.delta", "attention.ema.delta", 0),
    ("mega.cema.theta", "attention.ema.theta", 0),
    ("mega.cema.gamma", "attention.ema.gamma", 0),
    ("mega.cema.omega", "attention.ema.omega", 0),
    ("mega.rmsnorm.weight", "attention.ema_norm.weight", None),
    ("mega.wv.weight", "attention.value_proj.weight", 0),
    ("mega.wv.bias", "attention.value_proj.bias", 0),
    ("mega.wh2.weight", "attention.output_proj.weight", 1),
    ("mega.gamma", "attention.kappa", 1),
    ("mega.beta", "attention.mu", 1),
    ("nffn.norm.weight", "feed_forward.norm.weight", None),
    ("nffn.norm.bias", "feed_forward.norm.bias", None),
    ("nffn.fc2.weight", "feed_forward.output_proj.weight", 1),
    ("nffn.alpha", "feed_forward.scale", 0),
)
# Several published matrices, stacked by rows, are one matrix of ours; ranks split all of them by rows.
JOINED: Tuple[Tuple[Tuple[str, ...], str], ...] = (
    (("mega.wz.weight", "mega.wr.weight", "mega.wh1.weight"), "attention.gate_proj.weight"),
    (("mega.wz.bias", "mega.wr.bias", "mega.wh1.bias"), "attention.gate_proj.bias"),
    (("nffn.fc1.weight", "nffn.fc3.weight"), "feed_forward.input_proj.weight"),
)
MODEL: Tuple[Tuple[str, str, Optional[int]], ...] = (
    ("embed.weight", "decoder.embedding.tokens.weight", 1),
    ("output.final_norm.weight", "decoder.final_norm.weight", 0),
    ("output.final_norm.bias", "decoder.final_norm.bias", 0),
    ("output.output.weight", "decoder.output_projection.weight", 1),
)
TRAILING = ("cema.alpha", "cema.delta", "cema.theta", "cema.omega")  # published with a last axis of length one
PRIORS = ("prior_count", "prior_mean", "prior_logv")  # buffers of each timestep norm, without effect if the count is 0
FREQUENCIES = "rope.freqs"


def split_axis(name: str) -> Optional[int]:
    """Return the axis along which ranks split a published tensor, or None."""
    part = name.split(".", 2)[2] if name.startswith("layers.") else name
    if part.endswith(("prior_mean", "prior_logv")):
        return 0
    if any(part in parts for parts, _ in JOINED):
        return 0
    return next((axis for published, _, axis in (*LAYER, *MODEL) if published == part), None)


def merge_ranks(ranks: List[Dict[str, Tensor]]) -> Dict[str, Tensor]:
    """Merge the tensors of tensor-parallel ranks, given in order, into the tensors of the whole model.

    Raises:
        ValueError: if the ranks have different names, or different values of a tensor that is not split.
    """
    first = ranks[0]
    if len(ranks) == 1:
        return first
    for number, rank in enumerate(ranks):
        if rank.keys() != first.keys():
            odd = sorted(rank.keys() ^ first.keys())
            raise ValueError(f"ranks 0 and {number} have different tensors: {', '.join(odd)}: get a new copy")
    merged = {}
    for name in first:
        axis = split_axis(name)
        parts = [rank[name] for rank in ranks]
        if axis is None and not all(torch.equal(parts[0], part) for part in parts):
            raise ValueError(f"{name} must be equal in all ranks, and differs: get a new copy")
        merged[name] = parts[0] if axis is None else torch.cat(parts, dim=axis)
    return merged


def to_ours(published: Dict[str, Tensor]) -> Dict[str, Tensor]:
    """Rename the tensors of a whole published model; an unknown tensor keeps its name.

    Raises:
        ValueError: if a norm has a prior, which is not supported.
    """
    left, ours = dict(published), {}
    for name in published:
        if name.endswith(PRIORS):
            if name.endswith("prior_count") and left[name].any():
                raise ValueError(f"{name} is {left[name].tolist()}: norms with a prior are not supported")
            del left[name]
    left.pop(FREQUENCIES, None)
    for layer in _layers(published, "layers.", 1):
        there, here = f"layers.{layer}.", f"decoder.layers.{layer}."
        for name, new, _ in LAYER:
            if there + name in left:
                tensor = left.pop(there + name)
                ours[here + new] = tensor.squeeze(-1) if name.endswith(TRAILING) else tensor
        for names, new in JOINED:
            parts = [left.pop(there + name) for name in names if there + name in left]
            if parts:
                ours[here + new] = torch.cat(parts)
    for name, new, _ in MODEL:
        if name in left:
            ours[new] = left.pop(name)
    return {**ours, **left}


def to_published(ours: Dict[str, Tensor], widths: Dict[str, List[int]], shared: bool) -> Dict[str, Tensor]:
    """Rename our tensors to published names: the inverse of :func:`to_ours`, without buffers.

    Args:
        ours: our names to tensors.
        widths: rows of the parts of each joined matrix, by our name within a layer.
        shared: the output matrix is the embedding table.
    """
    published = {}
    for layer in _layers(ours, "decoder.layers.", 2):
        there, here = f"layers.{layer}.", f"decoder.layers.{layer}."
        for name, old, _ in LAYER:
            if here + old in ours:
                tensor = ours[here + old]
                published[there + name] = tensor.unsqueeze(-1) if name.endswith(TRAILING) else tensor
        for names, old in JOINED:
            if here + old in ours:
                published.update({there + name: part for name, part in zip(names, ours[here + old].split(widths[old]))})
    published.update({name: ours[old] for name, old, _ in MODEL if old in ours})
    if shared:
        published["output.output.weight"] = published["embed.weight"]
    return published


def _layers(names: Dict[str, Tensor], prefix: str, part: int) -> List[int]:
    return sorted({int(name.split(".")[part]) for name in names if name.startswith(prefix)})
