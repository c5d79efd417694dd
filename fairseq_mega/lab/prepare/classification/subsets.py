"""The division of examples into splits, and small random subsets."""

from typing import Dict, List, Optional, Sequence

import numpy as np
import torch

from fairseq_mega.data.class_folders import listed
from fairseq_mega.lab.prepare.progress import SPLITS

SEED = 42  # of the divisions and the subsets


def kept(split: str, size: int, limit: Optional[List[int]], drawn_as: Optional[str] = None) -> np.ndarray:
    """Return the indices (n,) int64 of the kept ones of ``size`` examples: all in order, or a random subset in random
    order.

    Files are often sorted by label: their first examples would all be of one class. ``drawn_as`` names another split to
    draw like: two splits of the same examples then keep the same examples, if their limits are equal.
    """
    if limit is None:
        return np.arange(size)
    order = np.random.default_rng((SEED, SPLITS.index(drawn_as or split))).permutation(size)
    return order[: limit[SPLITS.index(split)]]


def random_split(size: int, train: int, valid: int) -> Dict[str, np.ndarray]:
    """Return the indices (n,) int64 of the examples of each split in the drawn order; the rest is test.

    They are those of torch's random_split with a generator of SEED.
    """
    order = torch.randperm(size, generator=torch.Generator().manual_seed(SEED)).numpy()
    return dict(zip(SPLITS, np.split(order, [train, train + valid])))


def stratified_split(labels: np.ndarray, held_out: Dict[str, float], names: Sequence[str]) -> Dict[str, np.ndarray]:
    """Hold out a share of the examples of every label, at least one, for each named split; the rest is train.

    Args:
        labels: (n,) integers from 0, with these names; each has examples.

    Returns:
        For each split the indices of its examples in random order, (m,) int64.

    Raises:
        ValueError: if a label has too few examples for one in each split.
    """
    draw = np.random.default_rng(SEED)
    parts: Dict[str, List[np.ndarray]] = {split: [] for split in ("train", *held_out)}
    counts = np.bincount(labels)
    few = [f"{name!r} has {count}" for name, count in zip(names, counts) if 0 < count <= len(held_out)]
    if few:
        raise ValueError(
            f"labels with too few examples: {listed(few)}; {len(held_out) + 1} of each are needed to hold one out for "
            f"{' and '.join(held_out)}"
        )
    for label in np.flatnonzero(counts):
        rows = draw.permutation(np.flatnonzero(labels == label))
        for split, share in held_out.items():
            part, rows = np.split(rows, [max(1, int(share * counts[label]))])
            parts[split].append(part)
        parts["train"].append(rows)
    return {split: draw.permutation(np.concatenate(rows)) for split, rows in parts.items()}


def note_on_limit(limit: Optional[List[int]]) -> List[str]:
    """Return the note on --limit in card.json."""
    return [] if limit is None else [f"a random subset (seed 42) of at most {limit} examples of {', '.join(SPLITS)}"]
