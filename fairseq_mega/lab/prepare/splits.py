"""The splits of every corpus, in the order in which they are named and counted."""

from typing import Collection, Hashable, Mapping

from fairseq_mega.lab.prepare.progress import print_line

SPLITS = ("train", "valid", "test")
# Pairs of parallel text: with fewer, subwords and scores are meaningless.
MINIMUM_PAIRS = {"train": 50, "valid": 5, "test": 5}
HELD_OUT = 20  # of so many pairs or documents one is held out for each missing split


def print_overlap(splits: Mapping[str, Collection[Hashable]], things: str) -> None:
    """Print the number of examples of valid and test that are also in train, which raises the score."""
    train = set(splits["train"])
    for split in SPLITS[1:]:
        known = sum(example in train for example in splits[split])
        if known:
            print_line(f"note: {things} of {split} that are also in train, which raises the score: {known:,}")
