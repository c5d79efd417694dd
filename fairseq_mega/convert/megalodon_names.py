"""Tensors of XuezheMax/megalodon and ours: names, what is joined to one matrix, and how its ranks split each tensor."""

import re
from typing import Dict, List, Optional, Tuple

import torch
from torch import Tensor

# Published name within a layer -> ours, and the axis that tensor-parallel ranks split; None: each holds the whole.
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
# Several published matrices, one below the other, are one of ours; all are split by rows.
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
TRAILING = ("cema.alpha", "cema.delta", "cema.theta", "cema.omega")  # with a last axis of length one there
PRIORS = ("prior_count", "prior_mean", "prior_logv")  # buffers of each timestep norm, of no effect at a count of 0
FREQUENCIES = "rope.freqs"


def split_axis(name: str) -> Optional[int]:
    """The axis along which ranks split a published tensor, or None."""
    part = name.split(".", 2)[2] if name.startswith("layers.") else name
    if part.endswith(("prior_mean", "prior_logv")):
        return 0
    if any(part in parts for parts, _ in JOINED):
        return 0
    return next((axis for published, _, axis in (*LAYER, *MODEL) if published == part), None)


def merge_ranks(ranks: List[Dict[str, Tensor]]) -> Dict[str, Tensor]:
    """The tensors of the whole model from those of its tensor-parallel ranks, in order.

    Raises:
        ValueError: if the ranks hold different names, parts that do not fit each other, or different values where each
            holds the whole.
    """
    first = ranks[0]
    if len(ranks) == 1:
        return first
    for number, rank in enumerate(ranks):
        if rank.keys() != first.keys():
            odd = sorted(rank.keys() ^ first.keys())
            raise ValueError(f"ranks 0 and {number} do not hold the same tensors: {', '.join(odd)}")
    merged = {}
    for name in first:
        axis = split_axis(name)
        parts = [rank[name] for rank in ranks]
        if axis is None and not all(torch.equal(parts[0], part) for part in parts):
            raise ValueError(f"{name} differs between the ranks, each of which holds the whole")
        merged[name] = parts[0] if axis is None else _joined(name, parts, axis)
    return merged


def _joined(name: str, parts: List[Tensor], axis: int = 0) -> Tensor:
    shapes = [tuple(part.shape) for part in parts]
    if len({shape[:axis] + shape[axis + 1 :] for shape in shapes}) > 1 or len({*map(len, shapes)}) > 1 or not shapes[0]:
        raise ValueError(f"{name}: parts of the shapes {', '.join(map(str, shapes))} do not fit: get a new copy")
    return torch.cat(parts, dim=axis)


def to_ours(published: Dict[str, Tensor]) -> Dict[str, Tensor]:
    """Our names to tensors from a whole published model; what has no name here keeps its own.

    Raises:
        ValueError: if a norm has a prior, which nothing here has, or parts of a matrix do not fit each other.
    """
    left, ours = dict(published), {}
    for name in published:
        if name.endswith(PRIORS):
            if name.endswith("prior_count") and left[name].any():
                raise ValueError(f"{name} is {left[name].tolist()}: norms with a prior cannot be converted")
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
                ours[here + new] = _joined(f"{there}{names[0]} and its like", parts)
    for name, new, _ in MODEL:
        if name in left:
            ours[new] = left.pop(name)
    return {**ours, **left}


def to_published(ours: Dict[str, Tensor], widths: Dict[str, List[int]], shared: bool) -> Dict[str, Tensor]:
    """The inverse of :func:`to_ours`, without buffers.

    Args:
        ours: our names to tensors.
        widths: rows of the parts of each joined matrix, by our name within a layer.
        shared: the output matrix is the table of embeddings.
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


def published_name(ours: str) -> str:
    """The published name of a tensor of ours, for messages; the names of those that are joined in it."""
    found = re.match(r"decoder\.(layers\.\d+\.)(.*)", ours)
    layer, part = found.groups() if found else ("", ours)
    names: Dict[str, Tuple[str, ...]] = {old: (name,) for name, old, _ in (LAYER if found else MODEL)}
    names.update({old: parts for parts, old in (JOINED if found else ())})
    return " + ".join(f"{layer}{name}" for name in names[part]) if part in names else ours


def _layers(names: Dict[str, Tensor], prefix: str, part: int) -> List[int]:
    return sorted({int(name.split(".")[part]) for name in names if name.startswith(prefix)})
