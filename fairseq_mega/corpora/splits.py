"""The splits of every corpus, in the order in which they are named and counted."""

SPLITS = ("train", "valid", "test")
