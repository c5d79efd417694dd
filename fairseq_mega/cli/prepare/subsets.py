"""Which examples belong to which split, and which of them a small subset keeps."""

import argparse
from typing import Dict, List, Optional

import numpy as np
import torch

from fairseq_mega.data.text_spans import SPLITS


def parse_limit(text: str) -> List[int]:
    """Parse the argument of --limit: N for every split, or N,N,N for train, valid and test."""
    parts = text.split(",")
    try:
        values = [int(part) for part in parts]
    except ValueError:
        values = []
    if len(values) not in (1, 3) or min(values) < 1:
        raise argparse.ArgumentTypeError(
            f"{text!r}: one whole number of at least 1 is needed, or three: TRAIN,VALID,TEST"
        )
    return values * 3 if len(values) == 1 else values


def add_limit(parser: argparse.ArgumentParser) -> None:
    """Add --limit."""
    parser.add_argument(
        "--limit",
        type=parse_limit,
        metavar="N[,N,N]",
        help="keep so many examples of each split (or of train, valid and test), drawn with a fixed seed",
    )


def kept(split: str, size: int, limit: Optional[List[int]], drawn_as: Optional[str] = None) -> np.ndarray:
    """Return which of ``size`` examples a split keeps, (n,) int64: all in order, or a random subset in random order.

    Files are often sorted by label: the first examples of one would all be of one class. ``drawn_as`` draws as for
    another split, so that two splits of the same examples keep the same ones, as far as their limits are equal.
    """
    if limit is None:
        return np.arange(size)
    order = np.random.default_rng((42, SPLITS.index(drawn_as or split))).permutation(size)
    return order[: limit[SPLITS.index(split)]]


def random_split(size: int, train: int, valid: int, seed: int = 42) -> Dict[str, np.ndarray]:
    """Split ``size`` examples as torch's random_split does with a generator of this seed; the rest is test.

    Returns:
        per split the numbers of its examples, (n,) int64, in the drawn order.
    """
    order = torch.randperm(size, generator=torch.Generator().manual_seed(seed)).numpy()
    return dict(zip(SPLITS, np.split(order, [train, train + valid])))


def note_on_limit(limit: Optional[List[int]]) -> List[str]:
    """Return what SOURCE.json says about --limit."""
    return [] if limit is None else [f"a random subset (seed 42) of at most {limit} examples of {', '.join(SPLITS)}"]
