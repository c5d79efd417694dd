"""The division of examples into splits, and small random subsets."""

from collections import defaultdict
from pathlib import Path
from typing import DefaultDict, Dict, List, Optional, Sequence, Set, Tuple

import numpy as np
import torch

from fairseq_mega.data.class_folders import Wanted, class_files, listed
from fairseq_mega.lab.prepare.progress import say
from fairseq_mega.lab.prepare.splits import SPLITS

SEED = 42  # of the divisions and the subsets


def kept(split: str, size: int, limit: Optional[List[int]], drawn_as: Optional[str] = None) -> np.ndarray:
    """Return the numbers (n,) int64 of the kept ones of ``size`` examples: all in order, or a random subset in random
    order.

    Files are often sorted by label: their first examples would all be of one class. ``drawn_as`` names another split to
    draw like: two splits of the same examples then keep the same examples, if their limits are equal.
    """
    if limit is None:
        return np.arange(size)
    order = np.random.default_rng((SEED, SPLITS.index(drawn_as or split))).permutation(size)
    return order[: limit[SPLITS.index(split)]]


def limited(splits: Dict[str, np.ndarray], limit: Optional[List[int]]) -> Dict[str, np.ndarray]:
    """Return the numbers (n,) of the examples of each split, as far as :func:`kept` keeps them."""
    return {split: numbers[kept(split, len(numbers), limit)] for split, numbers in splits.items()}


def random_split(size: int, train: int, valid: int) -> Dict[str, np.ndarray]:
    """Split ``size`` examples as torch's random_split does with a generator of SEED; the rest is test.

    Returns:
        For each split the numbers of its examples, (n,) int64, in the drawn order.
    """
    order = torch.randperm(size, generator=torch.Generator().manual_seed(SEED)).numpy()
    return dict(zip(SPLITS, np.split(order, [train, train + valid])))


def stratified_split(
    labels: np.ndarray,
    held_out: Dict[str, float],
    names: Sequence[str],
    remedy: str = "give more of them, or remove the label",
) -> Dict[str, np.ndarray]:
    """Hold out a share of the examples of every label, at least one, for each named split; the rest is train.

    Args:
        labels: (n,) integers from 0, one value for each class.
        held_out: share by the name of the split.
        names: of the labels 0, 1, ..., for messages.
        remedy: for labels with too few examples.

    Returns:
        For each split the numbers of its examples in random order, (m,) int64.

    Raises:
        ValueError: if a label has too few examples for one in each split.
    """
    draw = np.random.default_rng(SEED)
    parts: Dict[str, List[np.ndarray]] = {split: [] for split in ("train", *held_out)}
    counts = {names[label]: int(count) for label, count in zip(*np.unique(labels, return_counts=True))}
    few = [f"{name!r} has {count}" for name, count in counts.items() if count <= len(held_out)]
    if few:
        raise ValueError(
            f"labels with too few examples: {listed(few)}; {len(held_out) + 1} of each are needed to hold one out for "
            f"{' and '.join(held_out)}: {remedy}"
        )
    for label in np.unique(labels):
        rows = draw.permutation(np.flatnonzero(labels == label))
        for split, share in held_out.items():
            count = max(1, int(share * len(labels[labels == label])))
            parts[split].append(rows[:count])
            rows = rows[count:]
        parts["train"].append(rows)
    return {split: draw.permutation(np.concatenate(rows)) for split, rows in parts.items()}


def labelled_files(folder: Path, wanted: Wanted) -> Dict[str, List[str]]:
    """Return the sorted names of the files of each label; print which files are left out.

    Raises:
        FileNotFoundError, ValueError: as for :func:`class_files`.
    """
    files, whole = class_files(folder, wanted)
    if whole.left_out:
        say(f"--dir {folder}: left out: {whole.described()}")
    return files


def say_lost(counts: Dict[str, int], labels: Sequence[str]) -> None:
    """Print the labels without training examples after --limit."""
    lost = [repr(label) for label in labels if not counts.get(label)]
    if lost:
        say(f"--limit leaves no example to train on of {len(lost)} labels: {listed(lost)}")


def say_copies(splits: Dict[str, List[Tuple[bytes, str]]], things: str) -> None:
    """Print the number of examples with several labels, and of examples of valid and test that are also in train.

    Args:
        splits: content and label of each example.
        things: name of the examples in the message.
    """
    labels: DefaultDict[bytes, Set[str]] = defaultdict(set)
    for examples in splits.values():
        for content, label in examples:
            labels[content].add(label)
    several = sum(len(found) > 1 for found in labels.values())
    if several:
        say(f"note: {things} with several labels, of which a model can learn only one: {several:,}")
    learnt = {content for content, _ in splits["train"]}
    for split in SPLITS[1:]:
        known = sum(content in learnt for content, _ in splits[split])
        if known:
            say(f"note: {things} of {split} that are also in train, which raises the score: {known:,}")


def say_empty(paths: Sequence[str], numbers: np.ndarray, is_empty: np.ndarray, labels: Sequence[str], what: str) -> int:
    """Print and return the number of examples that hold nothing; name some, and the labels of which all are empty.

    Args:
        paths, numbers, is_empty: (n,) files of the examples, the numbers of their labels, and bool.
        what: continues "3 of the ".
    """
    empty = [path for path, found in zip(paths, is_empty) if found]
    if empty:
        lost = [repr(labels[number]) for number in np.unique(numbers) if is_empty[numbers == number].all()]
        whole = f"; all of {listed(lost)}" if lost else ""
        say(f"note: {len(empty):,} of the {what}: {listed(empty)}{whole}")
    return len(empty)


def note_on_limit(limit: Optional[List[int]]) -> List[str]:
    """Return the note on --limit in card.json."""
    return [] if limit is None else [f"a random subset (seed 42) of at most {limit} examples of {', '.join(SPLITS)}"]
