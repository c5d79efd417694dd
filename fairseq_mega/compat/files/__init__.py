"""Files: read checkpoints as data alone, compare their cards, and write them whole."""
