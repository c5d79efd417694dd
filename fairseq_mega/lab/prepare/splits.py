"""The splits of every corpus, in the order in which they are named and counted."""

SPLITS = ("train", "valid", "test")
# Pairs of parallel text: with fewer subwords and scores are meaningless.
MINIMUM_PAIRS = {"train": 50, "valid": 5, "test": 5}
HELD_OUT = 20  # of so many pairs or documents one is held out for each split that is not given
